"""Controllers that watch and discover, Pods that end as a kubelet would report it, and a ServiceAccount for them."""

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.cluster import controlplane, jobpods, process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import CONFIGURATIONS, ROOT
from tests.cluster.test_controller import COMMAND, Controller, waited
from webhook.controller.mark import ANNOTATION

Json = dict[str, Any]
IGNORES: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
QUICK: Final = ("--lease-seconds", "3", "--discovery-seconds", "0.5", "--certificates", "external")
FORWARD: Final = ROOT / "tests" / "node" / "forward.py"
FACTS: Final = "drainproof-facts"
NAMES: Final = itertools.count()


@dataclass
class Kubelet:
    """The only Pod of a Job, and what becomes of it."""

    plane: ControlPlane
    namespace: str
    job: str
    name: str

    def runs(self) -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": self.namespace}}
        self._post("binding", {**binding, **target})
        self.reports({"phase": "Running"})

    def is_evicted(self) -> None:
        self._post("eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.name}})

    def ends(self, phase: str = "Succeeded", word: str = "", **status: Any) -> None:
        """Its program ends, with exit code 0 unless it failed, and the kubelet says so."""
        ended = {"exitCode": 143 if phase == "Failed" else 0, **({"message": word} if word else {})}
        image = {"image": "example.test/worker:1", "imageID": "sha256:0"}
        container = {"name": "worker", "ready": False, "restartCount": 0, "state": {"terminated": ended}, **image}
        self.reports({"phase": phase, "containerStatuses": [container], **status})

    def goes(self) -> None:
        """Its kubelet lets go of it; the Job controller has counted it before it is gone."""
        self.plane.kubectl("delete", "pod", self.name, "-n", self.namespace, "--grace-period=0", "--force", timeout=90)

    def reports(self, status: Json) -> None:
        words = ("patch", "pod", self.name, "-n", self.namespace, "--subresource=status", "--type=strategic", "-p")
        self.plane.kubectl(*words, json.dumps({"status": status}))

    def is_complete(self) -> bool:
        conditions = self.plane.get("job", self.job, "-n", self.namespace)["status"].get("conditions", [])
        return any((one["type"], one["status"]) == ("Complete", "True") for one in conditions)

    def _post(self, subresource: str, document: Json) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/{subresource}"
        self.plane.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(document))


@dataclass
class Site:
    """A control plane, and the controllers that run against it."""

    plane: ControlPlane
    folder: Path
    namespace: str
    stack: ExitStack = field(repr=False)
    log: int = 0

    def controller(self, *flags: str, kubeconfig: Path | None = None) -> Controller:
        """A controller of this site."""
        self.log += 1
        where = ("--kubeconfig", str(kubeconfig or self.plane.kubeconfig), "--namespace", self.namespace)
        command = [sys.executable, "-W", "error", "-c", COMMAND, *where, "--host", "127.0.0.1", "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = self.folder / f"{self.log}.log"
        started = process.start(f"controller-{self.log}", [*command, *QUICK, *flags], log, environment)
        self.stack.callback(process.stop, started)
        made = Controller(started)
        made.waited("controller started")
        return made

    def mark(self) -> tuple[int, int]:
        """What the leader has written into the Lease; zeros where it has not."""
        words = ("get", "lease", "drainproof-controller", "-n", self.namespace, "--ignore-not-found", "-o", "json")
        text = self.plane.kubectl(*words, check=False).stdout
        annotations = json.loads(text)["metadata"].get("annotations", {}) if text else {}
        since, _, until = annotations.get(ANNOTATION, "0-0").partition("-")
        return int(since), int(until)

    def seen(self) -> None:
        """Waits until the leader has seen everything there is, and said what there is to say."""
        listed = self.plane.kubectl("get", "--raw", "/api/v1/pods?limit=1").stdout
        version = int(json.loads(listed)["metadata"]["resourceVersion"])
        pod = {"metadata": {"generateName": "step-", "labels": {"batch.kubernetes.io/job-name": "step"}}}
        spec = {"containers": [{"name": "worker", "image": "example.test/worker:1"}]}
        self.plane.create({"apiVersion": "v1", "kind": "Pod", **pod, "spec": spec}, "-n", self.namespace)
        waited("the mark", lambda: self.mark()[1] > version)

    def job(self, name: str, **change: Any) -> Kubelet:
        """A Job whose Pod runs."""
        annotations = change.pop("annotations", {})
        spec = {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "example.test/worker:1"}]}
        template = {"metadata": {"annotations": annotations}, "spec": spec}
        metadata = {"name": name, "namespace": self.namespace}
        written = {"podFailurePolicy": IGNORES, "template": template, **change}
        self.plane.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": written})
        words = ("pods", "-n", self.namespace, "-l", f"batch.kubernetes.io/job-name={name}")
        found = waited("a Pod", lambda: self.plane.get(*words)["items"])[0]["metadata"]
        kubelet = Kubelet(self.plane, self.namespace, name, found["name"])
        kubelet.runs()
        return kubelet

    def events(self, job: str = "") -> list[Json]:
        """The Events CompletedUndone on a Job, or on all."""
        words = ("events", "-n", self.namespace, "--field-selector=reason=CompletedUndone")
        found = self.plane.get(*words)["items"]
        return [one for one in found if job in ("", one["involvedObject"]["name"])]

    def drained(self, name: str, **change: Any) -> Kubelet:
        """A Job whose Pod is evicted, exits 0 and is gone."""
        kubelet = self.job(name, **change)
        kubelet.is_evicted()
        kubelet.ends()
        kubelet.goes()
        return kubelet


def told(controllers: Iterable[Controller], job: str) -> list[Json]:
    return [line for one in controllers for line in one.lines("completed undone", job=job)]


def counts(controller: Controller, guard: str = "absent") -> float:
    name = f'drainproof_controller_false_completions_total{{guard="{guard}"}} '
    return float(controller.got("/metrics")[1].partition(name)[2].split("\n")[0])


def facts(site: Site) -> Any:
    """What is in the ConfigMap; None where there is none."""
    words = ("get", "configmap", FACTS, "-n", site.namespace, "--ignore-not-found", "-o", "json")
    text = site.plane.kubectl(*words).stdout
    if not text:
        return None
    document = json.loads(json.loads(text)["data"].get("facts.json", "null"))
    return {name: document.get(name) for name in ("karpenter", "nodepools")} if document else None


class Line:
    """A way to the API server that can be cut: nothing waits in it for whoever could not listen."""

    def __init__(self, site: Site, kubeconfig: Path) -> None:
        (self.port,) = controlplane.free_ports(1)
        self.site = site
        settings = json.loads(kubeconfig.read_text())
        for one in settings["clusters"]:
            one["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = site.folder / "line.kubeconfig"
        self.kubeconfig.write_text(json.dumps(settings))
        self.mend()

    def mend(self) -> None:
        """Lets connections pass."""
        command = [sys.executable, str(FORWARD), "127.0.0.1", str(self.port), self.site.plane.server]
        self.process = process.start("line", command, self.site.folder / "line.log", os.environ)
        self.site.stack.callback(process.stop, self.process)

    def cut(self) -> None:
        """Ends all connections, and lets none begin."""
        self.process.popen.kill()
        process.stop(self.process)


@contextmanager
def site(plane: ControlPlane, folder: Path) -> Iterator[Site]:
    """A namespace of its own, with a Node of its name; nothing of it is left for a controller to find."""
    namespace = f"watched-{next(NAMES)}"
    jobpods.namespace(plane, namespace)
    try:
        with ExitStack() as stack:
            yield Site(plane, folder, namespace, stack)
    finally:
        words = ("-n", namespace, "--all", "--grace-period=0", "--force")
        plane.kubectl("delete", "jobs,pods", *words, timeout=120)
        plane.kubectl("delete", "namespace,node", namespace, "--wait=false")


def shipped() -> list[Json]:
    """The Role and the ClusterRole of the controller without its certificates."""
    found = YAML(typ="safe").load_all(CONFIGURATIONS / "rights.yaml")
    roles = [one for one in found if one["kind"] in ("Role", "ClusterRole")]
    return [one for one in roles if one["metadata"]["name"] == "drainproof-controller"]


@dataclass
class Account:
    """A ServiceAccount with the rights that are shipped."""

    site: Site

    def __post_init__(self) -> None:
        metadata = {"name": "controller", "namespace": self.site.namespace}
        self.site.plane.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        subject = {"kind": "ServiceAccount", **metadata}
        for role in shipped():
            cluster = role["kind"] == "ClusterRole"
            place = {"name": self.site.namespace} | ({} if cluster else {"namespace": self.site.namespace})
            kind = {"apiVersion": f"{group['apiGroup']}/v1", "kind": f"{role['kind']}Binding", "metadata": place}
            reference = {**group, "kind": role["kind"], "name": self.site.namespace}
            self.site.plane.create({**kind, "roleRef": reference, "subjects": [subject]})
            if cluster:
                name = self.site.namespace
                self.site.stack.callback(self.site.plane.kubectl, "delete", "clusterrole,clusterrolebinding", name)
        self.has()

    def has(self, without: tuple[str, str] | None = None) -> None:
        """Gives it all rights, or all but one."""
        for role in shipped():
            rules = [
                {**rule, "resources": [resource], "verbs": verbs}
                for rule in role["rules"]
                for resource in rule["resources"]
                if (verbs := [verb for verb in rule["verbs"] if (resource, verb) != without])
            ]
            place = {"name": self.site.namespace, "namespace": self.site.namespace}
            self.site.plane.kubectl("apply", "-f", "-", input=json.dumps({**role, "metadata": place, "rules": rules}))

    def kubeconfig(self) -> Path:
        words = ("create", "token", "controller", "-n", self.site.namespace)
        settings = json.loads(self.site.plane.kubeconfig.read_text())
        settings["users"] = [{"name": "test", "user": {"token": self.site.plane.kubectl(*words).stdout.strip()}}]
        path = self.site.folder / "account.kubeconfig"
        path.write_text(json.dumps(settings))
        return path

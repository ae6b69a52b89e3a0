"""`drainproof uninstall`: what is ours, in which order it goes, what stays, and what is said when something fails."""

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from tests.test_controller_run import answering, kubeconfig
from tests.test_deploy import CERTS, ROOT, documents, plural
from webhook.cli import main
from webhook.controller.api import Api, ApiError, ConnectionSettingsError, Thing
from webhook.uninstall import kinds, removal, run
from webhook.uninstall.account import Account
from webhook.uninstall.kinds import Kind
from webhook.uninstall.reach import reached
from webhook.uninstall.removal import Removal

OURS: Final = {"app.kubernetes.io/name": "drainproof"}
HELM: Final = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "drainproof"}
HERE: Final = "drainproof"
HOME: Final = kinds.NAMESPACES.place("", HERE)
MUTATING, VALIDATING = (one.place("", "drainproof") for one in kinds.CONFIGURATIONS)
CONTROLLER: Final = kinds.DEPLOYMENTS.place(HERE, "drainproof-controller")
POD: Final = Thing("/api/v1", "pods", "drainproof-controller-x", HERE)
KNOWN: Final = (*kinds.CONFIGURATIONS, kinds.DEPLOYMENTS, *kinds.rest())
SECRET: Final = Thing("/api/v1", "secrets", "drainproof-tls", HERE)


class Cluster(Api):
    """An API server that keeps objects, refuses what `refusals` name, and lets Pods end after some looks at them."""

    host = "https://there.test"

    def __init__(self) -> None:
        self.objects: dict[Thing, dict[str, Any]] = {}
        self.refusals: dict[tuple[str, str], int] = {}
        self.calls: list[tuple[str, Thing]] = []
        self.groups: list[dict[str, Any]] = [group("", "v1", "configmaps", "secrets", "pods", "events", "leases")]
        self.looks = 2
        self.ended: Callable[[], object] = lambda: None
        self._uids = itertools.count(1)

    def keep(self, thing: Thing, labels: Mapping[str, str] = OURS, /, **body: Any) -> dict[str, Any]:
        metadata = {"name": thing.name, "labels": dict(labels), "uid": f"u{next(self._uids)}"}
        self.objects[thing] = {**body, "metadata": {**metadata, **body.get("metadata", {})}}
        return self.objects[thing]

    def deleted(self) -> list[Thing]:
        return [thing for verb, thing in self.calls if verb == "delete"]

    def _call(
        self,
        method: str,
        verb: str,
        thing: Thing,
        body: Any = None,
        form: str = "",
        query: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> dict[str, Any]:
        assert not seconds
        assert method == {"list": "GET", "get": "GET", "delete": "DELETE"}[verb]
        self.calls.append((verb, thing))
        status = self.refusals.get((verb, thing.resource), self.refusals.get((verb, thing.name)))
        if status is not None:
            raise ApiError(verb, thing, status, "User cannot do this" if status else "no answer")
        if verb == "list":
            return {"items": self._items(thing, form, query or {})}
        if thing not in self.objects:
            raise ApiError(verb, thing, 404, "not found")
        if verb == "get":
            assert (form == "metadata") == (thing.resource not in ("namespaces", *WHOLE))
            return self.objects[thing]
        return self._delete(thing, body)

    def _items(self, thing: Thing, form: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        if form == "discovery":
            return [one for one in self.groups if (one["metadata"]["name"] == "") == (thing.resource == "api")]
        if thing.resource == "pods" and "labelSelector" in query:
            assert query["labelSelector"] == "app.kubernetes.io/name=drainproof,app.kubernetes.io/component=controller"
            self._look()
        wanted = OURS.items() if "labelSelector" in query else set()
        kept = [(key, one) for key, one in self.objects.items() if key.resource == thing.resource]
        return [
            one for key, one in kept if key.namespace == thing.namespace and wanted <= one["metadata"]["labels"].items()
        ]

    def _look(self) -> None:
        """A Pod whose Deployment is gone ends after some looks."""
        if CONTROLLER not in self.objects and POD in self.objects:
            self.looks -= 1
            if self.looks < 0:
                del self.objects[POD]
                self.ended()

    def _delete(self, thing: Thing, options: Any) -> dict[str, Any]:
        found = self.objects[thing]
        assert options["propagationPolicy"] == "Background"
        if options["preconditions"] != {"uid": found["metadata"]["uid"]}:
            raise ApiError("delete", thing, 409, "the UID in the precondition is another one")
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "now"
            return found
        del self.objects[thing]
        return {"kind": "Status", "status": "Success"}


WHOLE: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "clusterrolebindings")


def group(name: str, version: str, *resources: str, **more: Any) -> dict[str, Any]:
    """A group of discovery, with resources that can be listed in a namespace."""
    listed = [{"resource": one, "scope": "Namespaced", "verbs": ["get", "list"]} for one in resources]
    return {"metadata": {"name": name}, "versions": [{"version": version, "resources": listed, **more}]}


def calling(*services: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"clientConfig": {"service": {"namespace": where, "name": name}}} for where, name in services]


def place(resource: str, name: str) -> Thing:
    (kind,) = (one for one in KNOWN if one.resource == resource)
    return kind.place(HERE, name)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that `drainproof uninstall` reaches, with nothing in it."""
    made = Cluster()
    monkeypatch.setattr(run, "reached", lambda *_: made)
    monkeypatch.setattr(removal, "POLL_SECONDS", 0)
    return made


@pytest.fixture
def installed(cluster: Cluster) -> Cluster:
    """A cluster with an installation: one of each kind that there can be."""
    for thing in (MUTATING, VALIDATING):
        cluster.keep(thing, webhooks=calling((HERE, "drainproof")))
    cluster.keep(HOME)
    cluster.keep(kinds.DEPLOYMENTS.place(HERE, "drainproof"))
    cluster.keep(CONTROLLER)
    cluster.keep(POD)
    bound = {"subjects": [{"kind": "ServiceAccount", "name": "drainproof-controller", "namespace": HERE}]}
    for kind in kinds.rest():
        for name in kind.names or ("drainproof-controller",):
            cluster.keep(kind.place(HERE, name), **(bound if kind == kinds.BINDINGS else {}))
    everywhere = (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt"), ("events", "e"))
    for resource, name in everywhere:
        cluster.keep(Thing("/api/v1", resource, name, HERE), {})
    return cluster


def uninstall(*words: str) -> Result:
    return CliRunner().invoke(main, ["uninstall", *words])


def done(result: Result, code: int = 0) -> list[str]:
    """The lines of stdout, and that it ended so."""
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.stdout.splitlines()


def left(cluster: Cluster) -> set[str]:
    """What is there, but for what a cluster itself puts into a namespace."""
    passing = ("default", "kube-root-ca.crt", "e")
    return {str(thing) for thing in cluster.objects if thing.name not in passing}


def test_everything_goes_and_the_configurations_go_first_and_the_namespace_last(installed: Cluster) -> None:
    before = len(installed.objects)
    lines = done(uninstall())
    assert left(installed) == set()
    gone = installed.deleted()
    assert gone[:2] == [MUTATING, VALIDATING]
    assert {one.resource for one in gone[2:4]} == {"deployments"}
    assert gone[-1] == HOME
    assert lines[:2] == [f"removed {MUTATING}", f"removed {VALIDATING}"]
    assert lines[-1] == f"{len(gone)} objects removed."
    assert len(gone) == before - 4  # the Pod, and what is in every namespace


def test_the_rights_of_the_controller_go_before_what_it_could_make_again(installed: Cluster) -> None:
    done(uninstall())
    order = [one.resource for one in installed.deleted()]
    for right, made in itertools.product(
        ("rolebindings", "clusterrolebindings", "certificates"), ("secrets", "leases")
    ):
        assert order.index(right) < order.index(made)


def test_a_second_run_has_nothing_to_do(installed: Cluster) -> None:
    done(uninstall())
    installed.calls.clear()
    assert done(uninstall()) == ["There is nothing left to remove."]
    assert installed.deleted() == []


def test_a_dry_run_says_the_same_in_the_same_order_and_changes_nothing(installed: Cluster) -> None:
    before = dict(installed.objects)
    said = done(uninstall("--dry-run"))
    assert installed.objects == before
    assert {verb for verb, _ in installed.calls} == {"get", "list"}
    really = [one for one in done(uninstall()) if not one.startswith("waiting")]
    assert [one.replace("would remove", "removed").replace("would be removed", "removed") for one in said] == really


def test_secrets_that_the_controller_makes_again_while_it_ends_go_too(installed: Cluster) -> None:
    del installed.objects[SECRET]
    installed.ended = lambda: installed.keep(SECRET)
    lines = done(uninstall())
    assert f"removed {SECRET}" in lines
    waiting = f"waiting until the controller ends, for at most 120 s: {POD}"
    assert lines.index(waiting) < lines.index(f"removed {SECRET}")
    assert left(installed) == set()


def test_a_controller_that_does_not_end_is_a_failure_and_the_rest_goes_all_the_same(installed: Cluster) -> None:
    installed.looks = 10**9
    result = uninstall("--wait-seconds", "0")
    done(result, code=1)
    assert f"Error: {POD} is still there: 0 s were not enough until the controller ends" in result.stderr
    assert left(installed) == {str(POD)}


def test_a_wait_is_said_again_now_and_then(installed: Cluster) -> None:
    installed.looks = 40
    now = [0.0]
    said: list[str] = []
    account = Account(said.append, said.append)
    waiting = Removal(installed, HERE, account, 60.0, lambda: now[0], lambda s: now.__setitem__(0, now[0] + s + 1.0))
    waiting.everything("drainproof-tls", keep_namespace=True)
    assert len([one for one in said if one.startswith("waiting")]) == 3
    assert account.problems == 0


def test_a_pod_that_has_ended_is_not_waited_for(installed: Cluster) -> None:
    installed.objects[POD]["status"] = {"phase": "Failed"}
    installed.looks = 10**9
    assert not [one for one in done(uninstall()) if one.startswith("waiting")]


def test_what_others_made_stays_even_under_a_name_of_ours(installed: Cluster) -> None:
    theirs = [
        installed.keep(MUTATING, {}, webhooks=calling(("elsewhere", "other"), (HERE, "other"))),
        installed.keep(Thing("/api/v1", "configmaps", "mine", HERE), {}),
        installed.keep(SECRET, {}),
        installed.keep(Thing("/apis/apps/v1", "deployments", "mine", HERE), {}),
        installed.keep(Thing(MUTATING.prefix, MUTATING.resource, "theirs"), {}, webhooks=calling(("x", "drainproof"))),
    ]
    installed.keep(Thing("/api/v1", "secrets", "drainproof-ca", HERE), OURS | {"more": "x"})
    lines = done(uninstall())
    assert [one for one in theirs if one not in installed.objects.values()] == []
    assert left(installed) == {str(HOME), *(str(key) for key, one in installed.objects.items() if one in theirs)}
    label = "it does not carry the label app.kubernetes.io/name=drainproof"
    assert f"{MUTATING} stays: {label}, and does not call our Service" in lines
    assert f"{SECRET} stays: {label}, so that neither the controller nor cert-manager made it for us" in lines
    assert f"{HOME} stays: it holds what is not ours: configmaps {HERE}/mine, {SECRET}" in lines
    again = done(uninstall())
    assert again[-1] == "There is nothing left to remove."


def test_a_configuration_without_our_label_that_calls_our_service_is_ours(installed: Cluster) -> None:
    installed.keep(MUTATING, {}, webhooks=[{}, {"clientConfig": {"url": "https://x"}}, *calling((HERE, "drainproof"))])
    done(uninstall())
    assert left(installed) == set()


def test_secrets_of_cert_manager_go_with_the_certificates_that_they_were_made_for(installed: Cluster) -> None:
    key = "cert-manager.io/certificate-name"
    ca, custom = (Thing("/api/v1", "secrets", name, HERE) for name in ("drainproof-ca", "custom"))
    for thing, certificate in ((ca, "drainproof-ca"), (custom, "drainproof"), (SECRET, "another")):
        installed.keep(thing, {}, metadata={"annotations": {key: certificate}})
    done(uninstall("--secret", "custom"))
    assert left(installed) == {str(SECRET), str(HOME)}


def test_only_the_configurations_go_and_they_are_all_that_is_asked_about(installed: Cluster) -> None:
    before = left(installed)
    installed.objects[MUTATING]["metadata"]["annotations"] = HELM
    lines = done(uninstall("--configurations-only"))
    assert before - left(installed) == {str(MUTATING), str(VALIDATING)}
    assert lines == [f"removed {MUTATING}", f"removed {VALIDATING}", "2 objects removed."]
    assert {verb for verb, _ in installed.calls} == {"get", "delete"}
    assert {thing for _, thing in installed.calls} == {MUTATING, VALIDATING}


def test_leftovers_are_what_the_controller_made_and_are_asked_for_by_name(installed: Cluster) -> None:
    del installed.objects[CONTROLLER]
    facts, lease = place("configmaps", "drainproof-facts"), place("leases", "drainproof-controller")
    custom, ca = place("secrets", "custom"), place("secrets", "drainproof-ca")
    installed.keep(custom)
    before = left(installed)
    done(uninstall("--leftovers-only", "--secret=custom"))
    assert before - left(installed) == {str(one) for one in (facts, lease, custom, ca)}
    assert {verb for verb, _ in installed.calls} == {"get", "delete"}
    assert {thing for _, thing in installed.calls} == {CONTROLLER, facts, lease, custom, ca}


def test_leftovers_stay_while_there_is_a_controller_that_would_make_them_again(installed: Cluster) -> None:
    result = uninstall("--leftovers-only")
    assert done(result, code=2) == []
    assert "the controller is there, and would make them again" in result.stderr
    installed.objects[CONTROLLER]["metadata"]["deletionTimestamp"] = "now"
    done(uninstall("--leftovers-only"))
    assert SECRET not in installed.objects


@pytest.mark.parametrize("verb", ["delete", "list"])
def test_what_is_refused_is_said_and_the_rest_goes_on(installed: Cluster, verb: str) -> None:
    installed.refusals[verb, "networkpolicies"] = 403
    result = uninstall()
    lines = done(result, code=1)
    policy = place("networkpolicies", "drainproof-controller" if verb == "delete" else "")
    assert f"Error: could not {verb} {policy}: 403: User cannot do this" in result.stderr
    assert "can be run again" in result.stderr
    assert left(installed) == {str(place("networkpolicies", "drainproof-controller"))}
    assert f"removed {place('serviceaccounts', 'drainproof-controller')}" in lines
    installed.refusals.clear()
    done(uninstall())
    assert left(installed) == set()


def test_a_name_that_cannot_be_asked_about_does_not_keep_from_the_others(installed: Cluster) -> None:
    installed.keep(SECRET, {})
    installed.refusals["get", "secrets"] = 403
    result = uninstall()
    done(result, code=1)
    assert f"could not get {SECRET}: 403" in result.stderr
    assert str(place("leases", "drainproof-controller")) not in left(installed)


def test_without_its_deployments_gone_nobody_waits_for_a_controller(installed: Cluster) -> None:
    installed.refusals["delete", "deployments"] = 403
    result = uninstall()
    assert not [one for one in done(result, code=1) if one.startswith("waiting until the controller")]
    assert SECRET not in installed.objects


def test_pods_that_cannot_be_looked_at_are_said(installed: Cluster) -> None:
    installed.refusals["list", "pods"] = 403
    result = uninstall("--keep-namespace")
    done(result, code=1)
    assert f"could not list pods {HERE}: 403" in result.stderr
    assert left(installed) == {str(POD), str(HOME)}


def test_who_may_do_nothing_is_told_so_for_each_kind(installed: Cluster) -> None:
    for verb in ("get", "list"):
        installed.refusals |= {(verb, kind.resource): 403 for kind in (*KNOWN, kinds.NAMESPACES)}
    result = uninstall("--keep-namespace")
    assert not [one for one in done(result, code=1) if "left to remove" in one]
    assert result.stderr.count("Error: could not list ") == len(KNOWN)
    assert installed.deleted() == []


def test_kinds_that_the_cluster_does_not_know_are_not_there(installed: Cluster) -> None:
    for resource in ("certificates", "issuers", "servicemonitors", "podmonitors", "prometheusrules"):
        del installed.objects[place(resource, "drainproof-controller")]
        installed.refusals["list", resource] = 404
    done(uninstall())
    assert left(installed) == set()


def test_what_somebody_else_removes_meanwhile_is_gone(installed: Cluster) -> None:
    installed.refusals["delete", "services"] = 404
    assert f"removed {place('services', 'drainproof-controller')}" in done(uninstall())


def test_what_has_the_name_of_something_removed_meanwhile_is_left_and_said(installed: Cluster) -> None:
    found = installed.objects[SECRET]
    installed.objects[SECRET] = {**found, "metadata": {**found["metadata"], "uid": "old"}}

    class Late(dict[Thing, Any]):
        def __getitem__(self, thing: Thing) -> Any:
            return found if thing == SECRET else super().__getitem__(thing)

    installed.objects = Late(installed.objects)
    result = uninstall("--keep-namespace")
    done(result, code=1)
    assert f"could not delete {SECRET}: 409" in result.stderr


def test_what_finalizers_hold_is_said_and_keeps_no_namespace(installed: Cluster) -> None:
    installed.objects[SECRET]["metadata"]["finalizers"] = ["a/b", "c/d"]
    result = uninstall()
    done(result, code=1)
    assert f"{SECRET} is still there: it is removed once these finalizers let it: a/b, c/d" in result.stderr
    assert left(installed) == {str(SECRET)}


@pytest.mark.parametrize("status", [0, 401])
def test_without_an_api_server_that_knows_us_nothing_is_tried(installed: Cluster, status: int) -> None:
    installed.refusals["list", MUTATING.resource] = installed.refusals["get", MUTATING.resource] = status
    for words in ((), ("--configurations-only",), ("--dry-run",)):
        result = uninstall(*words)
        assert done(result, code=2) == []
        assert result.stderr.startswith("Error: ")
    assert installed.deleted() == []


@pytest.mark.parametrize("words", [(), ("--configurations-only",)])
def test_an_installation_in_another_namespace_is_left_alone(installed: Cluster, words: tuple[str, ...]) -> None:
    result = uninstall("--namespace", "mistyped", *words)
    assert done(result, code=2) == []
    assert result.stderr.endswith("installation in another namespace: give --namespace drainproof\n")
    assert installed.deleted() == []


def test_the_rights_of_an_installation_in_another_namespace_are_left_alone(installed: Cluster) -> None:
    done(uninstall("--configurations-only"))
    assert "give --namespace drainproof" in uninstall("--namespace", "mistyped").stderr
    assert installed.deleted() == [MUTATING, VALIDATING]


def test_what_helm_installed_is_left_to_helm(installed: Cluster) -> None:
    installed.objects[CONTROLLER]["metadata"]["annotations"] = HELM
    result = uninstall()
    assert done(result, code=2) == []
    assert "`helm --namespace drainproof uninstall mine` removes it with its record" in result.stderr
    assert installed.deleted() == []
    assert done(uninstall("--without-helm", "--dry-run"))[-1].endswith("would be removed.")
    lines = done(uninstall("--without-helm"))
    record = "The record of a Helm release stays; `helm --namespace drainproof uninstall mine --no-hooks` removes it."
    assert record in lines
    assert left(installed) == set()


def test_a_namespace_that_is_not_ours_stays_with_everything_of_others(installed: Cluster) -> None:
    installed.keep(HOME, {"team": "batch"})
    why = "it does not carry the label app.kubernetes.io/name=drainproof, so that it was made for more than drainproof"
    assert f"{HOME} stays: {why}" in done(uninstall())
    assert left(installed) == {str(HOME)}


def test_the_namespace_can_be_kept(installed: Cluster) -> None:
    done(uninstall("--keep-namespace"))
    assert left(installed) == {str(HOME)}


def test_what_is_of_others_in_the_namespace_is_looked_for_among_all_kinds(installed: Cluster) -> None:
    installed.groups.append(group("things.test", "v2", "things"))
    installed.groups[-1]["versions"] += group("things.test", "v1", "things", "older")["versions"]
    installed.groups.append(group("metrics.k8s.io", "v1beta1", "pods", freshness="Stale"))
    cluster_wide = {"resource": "all", "scope": "Cluster", "verbs": ["list"]}
    reviews = {"resource": "reviews", "scope": "Namespaced", "verbs": ["create"]}
    installed.groups[-2]["versions"][0]["resources"] += [cluster_wide, reviews]
    for number in range(7):
        installed.keep(Thing("/apis/things.test/v2", "things", f"t{number}", HERE), {})
    installed.keep(Thing("/apis/things.test/v1", "older", "o", HERE), {})
    shown = ", ".join(f"things {HERE}/t{number}" for number in range(5))
    assert f"{HOME} stays: it holds what is not ours: {shown} and 3 more" in done(uninstall())
    asked = [str(thing) for verb, thing in installed.calls if verb == "list" and "things.test" in thing.prefix]
    assert asked == [f"things {HERE}", f"older {HERE}"]


def test_what_is_owned_by_something_of_ours_keeps_no_namespace(installed: Cluster) -> None:
    uid = installed.objects[CONTROLLER]["metadata"]["uid"]
    owned = Thing("/api/v1", "leases", "made", HERE)
    installed.keep(owned, {}, metadata={"ownerReferences": [{"uid": uid}]})
    done(uninstall())
    assert HOME not in installed.objects
    installed.keep(HOME)
    assert f"{HOME} stays: it holds what is not ours: {owned}" in done(uninstall())


@pytest.mark.parametrize("status", [403, 503])
def test_a_namespace_that_cannot_be_looked_through_stays(installed: Cluster, status: int) -> None:
    installed.groups.append(group("things.test", "v1", "things"))
    installed.refusals["list", "things"] = status
    result = uninstall()
    assert f"{HOME} stays: what is in it could not be looked at" in done(result, code=1)
    assert f"could not list things {HERE}: {status}" in result.stderr
    assert left(installed) == {str(HOME)}


def test_a_group_whose_server_does_not_answer_keeps_the_namespace(installed: Cluster) -> None:
    installed.groups.append(group("things.test", "v1", freshness="Stale"))
    result = uninstall()
    done(result, code=1)
    assert "could not list things.test: 503: the server of this group does not answer" in result.stderr
    assert HOME in installed.objects


def test_a_kind_that_cannot_be_listed_after_all_holds_nothing(installed: Cluster) -> None:
    installed.groups.append(group("things.test", "v1", "things"))
    installed.refusals["list", "things"] = 405
    done(uninstall())
    assert left(installed) == set()


def test_a_namespace_that_is_being_removed_is_waited_for(installed: Cluster) -> None:
    done(uninstall("--keep-namespace"))
    installed.keep(Thing("/api/v1", "configmaps", "mine", HERE), {})
    home = installed.objects[HOME]
    home["metadata"] |= {"deletionTimestamp": "now"}
    held = iter(range(3))

    class Going(dict[Thing, Any]):
        def __delitem__(self, thing: Thing) -> None:
            if thing != HOME:
                super().__delitem__(thing)

        def __contains__(self, thing: object) -> bool:
            return super().__contains__(thing) and (thing != HOME or next(held, None) is not None)

    installed.objects = Going(installed.objects)
    lines = done(uninstall())
    assert f"waiting until the namespace is gone, for at most 120 s: {HOME}" in lines


def test_every_object_that_we_ship_is_of_a_kind_that_is_removed_and_carries_the_label() -> None:
    lists = [*(ROOT / "deploy").rglob("kustomization.yaml"), CERTS / "kustomization.yaml"]
    named = {one.parent / name for one in lists for name in documents(one)[0].get("resources", [])}
    shipped = documents(*sorted(path for path in named if path.is_file()))
    objects = [one for one in shipped if not one["apiVersion"].startswith("drainproof.dev/")]  # never applied
    assert len(objects) > 20
    for one in objects:
        assert_is_removed(one)


def assert_is_removed(one: Mapping[str, Any]) -> None:
    """That uninstalling finds an object as a manifest has it."""
    prefix = f"/apis/{one['apiVersion']}" if "/" in one["apiVersion"] else f"/api/{one['apiVersion']}"
    resource = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}.get(
        one["kind"], plural(one["kind"])
    )
    known = {(kind.prefix, kind.resource): kind for kind in (*KNOWN, kinds.NAMESPACES)}
    assert (prefix, resource) in known, f"{one['kind']} is not removed"
    kind: Kind = known[prefix, resource]
    assert kind.namespaced == ("namespace" in one["metadata"]), one["metadata"]["name"]
    assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "drainproof", one["metadata"]["name"]


def test_a_deletion_names_the_very_object_that_was_seen(tmp_path: Path) -> None:
    with answering(tmp_path, 200, b'{"kind": "Status"}') as (_, asked):
        host = json.loads((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
        api = reached(kubeconfig(tmp_path, host), "x", {})
        assert api.host == host
        api.delete(SECRET, "u1")
        api.get(SECRET, form="metadata")
        api.items(place("secrets", ""), "a=b", form="metadata-list")
        api.items(Thing("", "apis"), "", form="discovery")
    assert [one[:2] for one in asked] == [
        ("DELETE", SECRET.path),
        ("GET", SECRET.path),
        ("GET", f"/api/v1/namespaces/{HERE}/secrets?labelSelector=a%3Db"),
        ("GET", "/apis"),
    ]
    assert json.loads(asked[0][3])["preconditions"] == {"uid": "u1"}
    accepted = [one[2]["Accept"] for one in asked]
    assert accepted[0] == "application/json"
    assert ["PartialObjectMetadata;" in accepted[1], "as=PartialObjectMetadataList" in accepted[2]] == [True, True]
    assert "as=APIGroupDiscoveryList" in accepted[3]
    assert {one[2]["User-Agent"].partition("/")[0] for one in asked} == {"drainproof-uninstall"}


def test_the_api_server_is_the_one_that_kubectl_would_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConnectionSettingsError, match="this is no Pod with an account"):
        reached(None, None, {})
    with pytest.raises(ConnectionSettingsError, match="there is no kubeconfig"):
        reached(None, "x", {"KUBECONFIG": str(tmp_path / "none")})
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", "http://home.test").rename(tmp_path / ".kube" / "config")
    file = kubeconfig(tmp_path, "http://file.test")
    assert reached(None, None, {}).host == "http://home.test"
    assert reached(None, None, {"KUBECONFIG": f"{tmp_path}/none:{file}"}).host == "http://file.test"
    assert reached(file, "x", {"KUBECONFIG": "/nowhere"}).host == "http://file.test"
    with pytest.raises(ConnectionSettingsError, match="name y"):
        reached(file, "y", {})
    result = uninstall("--kubeconfig", str(tmp_path / "none"))
    assert done(result, code=2) == []
    assert "none: " in result.stderr

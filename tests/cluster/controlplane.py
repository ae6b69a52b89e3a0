"""A real Kubernetes control plane on loopback ports: etcd, kube-apiserver and kube-controller-manager.

No scheduler and no kubelet: Pods stay Pending. Needs neither root nor a container engine.
`python -m tests.cluster.controlplane` runs one until Ctrl-C.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from tests.cluster import credentials, flags, process, programs
from tests.cluster.credentials import HOST
from tests.cluster.process import Process
from tests.cluster.programs import Program


class KubectlError(Exception):
    """A kubectl call that ended with an exit code other than 0; the text holds its stderr."""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane and how to reach it; `kubeconfig` is an administrator's (system:masters)."""

    kubeconfig: Path
    server: str
    ca: Path
    logs: Path
    programs: Mapping[str, Program]
    children: Mapping[str, Process]
    environment: Mapping[str, str] = field(repr=False)
    _started: Callable[[str], None] = field(repr=False)

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each component."""
        return {name: child.popen.pid for name, child in self.children.items()}

    def kubectl(
        self, *args: str, input: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, with `input` as its stdin.

        Raises KubectlError for an exit code other than 0 (only with `check`), subprocess.TimeoutExpired after
        `timeout` seconds.
        """
        done = subprocess.run(
            [self.programs["kubectl"].path, *args],
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            env=dict(self.environment),
        )
        if check and done.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done

    def restart(self, name: str, kill: bool = False, meanwhile: Callable[[], object] = lambda: None) -> None:
        """End a component, with SIGKILL if asked to, and start it anew; return once it is ready again.

        `meanwhile` is done while it is down. Raises ProcessError when it does not start.
        """
        if kill:
            self.children[name].popen.kill()
        process.stop(self.children[name])
        meanwhile()
        self._started(name)

    def create(self, document: Mapping[str, Any], *args: str) -> dict[str, Any]:
        """Create an object; return it as stored. `args` go to kubectl; errors as in kubectl()."""
        return self._object("create", "-f", "-", *args, input=json.dumps(document))

    def get(self, *args: str) -> dict[str, Any]:
        """What `kubectl get` finds for `args`: an object, or a list with `items`. Errors as in kubectl()."""
        return self._object("get", *args)

    def _object(self, *args: str, input: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.kubectl(*args, "-o", "json", input=input).stdout)
        return answer


@dataclass(frozen=True)
class _Files:
    """Where one control plane keeps what it writes: `state` goes with it, `logs` stay."""

    state: Path
    logs: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """For every child: the caller's proxies, ETCD_ variables and ~/.kube have no say."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.state / "home"),
            "TMPDIR": str(self.state),
            "KUBECONFIG": str(self.kubeconfig),
        }


@contextmanager
def running(
    directory: Path, *, controllers: bool = True, apiserver_flags: Sequence[str] = ()
) -> Iterator[ControlPlane]:
    """Start a control plane, ready for Pods in namespace default, and end it on leaving.

    `directory` is made if missing; `logs` stays in it, all else is removed. Without `controllers` only the
    API server and etcd run: no Job gets Pods, no other namespace a ServiceAccount. `apiserver_flags` come
    last and so win. Call it from a thread that lasts: the end of that thread ends the processes.
    Raises ProgramError when there are no programs, ProcessError when one does not start (60 s for each).
    """
    found = programs.find()
    with ExitStack() as stack:
        try:
            plane = _start(directory, found, controllers, apiserver_flags, stack)
        except process.PortTakenError:
            # Somebody took a port between its choice and its use; the second try chooses others.
            stack.close()
            plane = _start(directory, found, controllers, apiserver_flags, stack)
        yield plane


def _start(
    directory: Path,
    found: Mapping[str, Program],
    controllers: bool,
    apiserver_flags: Sequence[str],
    stack: ExitStack,
) -> ControlPlane:
    """Start everything in order; whatever has started is ended by `stack`, in reverse."""
    files = _files(directory, stack)
    etcd_port, server_port = free_ports(2)
    server = f"https://{HOST}:{server_port}"
    admin = credentials.write(files.state, server)
    children: dict[str, Process] = {}
    words = {
        "etcd": flags.etcd(files.state, etcd_port),
        "kube-apiserver": [*flags.apiserver(files.state, etcd_port, server_port), *apiserver_flags],
        "kube-controller-manager": flags.controller_manager(files.state),
    }
    answers = {"etcd": (etcd_port, "/health"), "kube-apiserver": (server_port, "/readyz")}

    def run(name: str) -> None:
        command = [str(found[name].path), *words[name]]
        if name not in children:
            stack.callback(lambda: process.stop(children[name]))
        children[name] = process.start(name, command, files.logs / f"{name}.log", files.environment)
        if name in answers:
            ready(*answers[name])

    def ready(port: int, path: str) -> None:
        process.wait_ready([*children.values()], lambda: _status(admin, port, path) == 200)

    for name in words:
        if controllers or name in answers:
            run(name)
    account = "/api/v1/namespaces/default/serviceaccounts"
    ready(server_port, "/api/v1/namespaces/default")
    if not controllers:
        # Admission refuses a Pod without its ServiceAccount, and nobody else makes one.
        _status(admin, server_port, account, {"metadata": {"name": "default"}})
    ready(server_port, f"{account}/default")
    ca = files.state / "ca.crt"
    return ControlPlane(files.kubeconfig, server, ca, files.logs, found, children, files.environment, run)


def _files(directory: Path, stack: ExitStack) -> _Files:
    files = _Files(directory.absolute() / "state", directory.absolute() / "logs")
    files.logs.mkdir(parents=True, exist_ok=True)
    files.state.mkdir(mode=0o700)
    stack.callback(shutil.rmtree, files.state, ignore_errors=True)
    (files.state / "home").mkdir()
    return files


def free_ports(count: int) -> list[int]:
    """Different loopback ports that nobody listens on at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _status(admin: ssl.SSLContext, port: int, path: str, document: Mapping[str, Any] | None = None) -> int | None:
    """The HTTP status for a GET, or for a POST of `document`; None when nobody trusted answers."""
    # http.client knows no proxies, urllib would ask the environment for them.
    connection = HTTPSConnection(HOST, port, timeout=2, context=admin)
    body = None if document is None else json.dumps(document)
    try:
        connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def main() -> int:
    """Run a control plane until Ctrl-C, SIGTERM or SIGHUP; 1 when it does not start."""

    def told(plane: ControlPlane) -> None:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        print(f"{plane.server} is ready; logs in {plane.logs}; Ctrl-C ends it", file=sys.stderr, flush=True)

    return process.hold("drainproof-control-plane-", running, told, (programs.ProgramError, process.ProcessError))


if __name__ == "__main__":
    sys.exit(main())

"""`drainproof controller`: puts its parts together, runs them side by side, and ends them in order."""

import contextlib
import secrets
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import Any, Final

import click

from webhook import observe, policyfile
from webhook.command import refuse
from webhook.controller import api as apis
from webhook.controller import injection, rotation
from webhook.controller.api import Api
from webhook.controller.authority import Plan
from webhook.controller.deletion import Desk
from webhook.controller.health import Health
from webhook.controller.injection import Injection, Service
from webhook.controller.lease import Lease, lease
from webhook.controller.metrics import Complaints, Metrics, metrics
from webhook.controller.part import Part, Rounds
from webhook.controller.rotation import Rotation
from webhook.controller.secret import Secrets, secret
from webhook.controller.settings import Settings, options
from webhook.controller.stamp import Files, Stamp
from webhook.core import policy
from webhook.listener import bound, listening
from webhook.observe import LOG, said
from webhook.rules import RULES
from webhook.watched import Watched

END_SECONDS: Final = 5.0  # for what is under way when a signal comes
LAST_SECONDS: Final = 10.0  # after that, for giving up the Lease, and for a drain


@click.command()
@options
def controller(**given: Any) -> None:
    """Keeps the webhook's certificates, and the CA in its configurations, until SIGTERM or SIGINT.

    It makes a CA and a serving certificate, stores them in Secrets, replaces them before they expire
    without a moment in which the API server does not trust what a replica serves, and puts the CA
    back where something removes it. Of several replicas the one that holds the Lease works, and the
    others stand by. With --certificate and --key every replica also answers reviews of deletions at
    /stamp, as soon as there is something in these files, and goes by --policy; a changed file is taken
    over, and one that cannot be used changes nothing. Exits with 0 after a signal, with 1 where it
    cannot listen, and with 2 where a setting is wrong or there is no way to an API server.

    \b
    Examples:
      drainproof controller --namespace drainproof
      drainproof controller --kubeconfig ~/.kube/config --leaf-life 720h
      drainproof controller --certificate tls.crt --key tls.key --policy policy.yaml
    """
    settings = Settings(**given)
    problems, api = list(settings.problems()), None
    try:
        api = apis.connect(settings.kubeconfig)
    except apis.ConnectionSettingsError as error:
        problems.append(str(error))
    if problems or api is None:
        refuse(problems)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(settings.host, settings.port))
        stamping = stack.enter_context(bound(settings.host, settings.stamp_port)) if settings.pair else None
        observe.configure(settings.log_level)
        crew = composed(settings, api, listener, stamping)
        host, port = listener.getsockname()[:2]
        said("controller started", host=host, port=port, identity=crew.election.identity)
        crew.until_signalled()
    said("stopped")


@dataclass(frozen=True, slots=True)
class Crew:
    """All parts: those that work, the election of who does, which ends after them, and those that only answer.

    These drain, and no other replica has to wait for that before it may lead.
    """

    election: Lease
    parts: Sequence[Part]
    answering: Sequence[Part] = ()

    def until_signalled(self) -> None:
        """Runs everything until SIGTERM or SIGINT; a second signal ends the process at once."""
        stop = Event()

        def stopping(number: int, _frame: object) -> None:
            stop.set()
            signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stopping)
        self.run(stop)

    def run(self, stop: Event) -> None:
        """Runs everything until `stop` is set; then the parts end, and the Lease is given up after them."""
        given_up = Event()
        answering = [_started(part, stop) for part in self.answering]
        working = [_started(part, stop) for part in self.parts]
        electing = _started(self.election, given_up)
        stop.wait()
        said("stopping")
        _joined(working, END_SECONDS)
        given_up.set()
        _joined([electing, *answering], LAST_SECONDS)


def composed(settings: Settings, api: Api, listener: socket.socket, stamping: socket.socket | None = None) -> Crew:
    """The parts that `settings` ask for. A later part is one more line in `working`."""
    counted = metrics()
    complaints = Complaints(counted)
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    place = lease(settings.namespace, settings.lease)
    election = Lease(api, place, identity, settings.lease_seconds, complaints, on_lost=counted.expiry.clear)
    counted.leader.set_function(lambda: float(election.leads()))
    working: list[Part] = []
    if settings.certificates == "own":
        working += _certificates(settings, api, election, counted, complaints)
    answering = [_stamp(settings, api, stamping, counted, complaints)] if stamping else []
    health = _health(listener, [election, *working, *answering], counted)
    return Crew(election, [*working, health], answering)


def _certificates(
    settings: Settings, api: Api, election: Lease, counted: Metrics, complaints: Complaints
) -> Iterator[Part]:
    services = tuple(Service(settings.namespace, name) for name in settings.services)
    things = injection.configurations(settings.mutating, settings.validating)
    serving, ca = (secret(settings.namespace, name) for name in (settings.secret, settings.ca_secret))
    stored = Secrets(api, serving, ca, manager=f"drainproof-{election.identity}"[:128])
    leads, settle = election.leads, settings.settle_seconds
    rotating = Rotation(api, stored, things, services, plan(settings), settle, leads, counted, complaints)
    injecting = Injection(api, things, services, stored.trusted, leads, counted, complaints)
    for name, once in ((rotation.NAME, rotating.once), (injection.NAME, injecting.once)):
        yield Rounds(name, once, settings.poll_seconds, leads, complaints)


def _stamp(settings: Settings, api: Api, listener: socket.socket, counted: Metrics, complaints: Complaints) -> Stamp:
    assert settings.pair is not None  # else there is no listener
    chosen: policy.Policy | Watched[policy.Policy] = policy.default(RULES)
    if settings.policy:
        chosen = Watched(settings.policy, partial(policyfile.stated, rules=RULES))
    files = Files(settings.pair, settings.client_ca, chosen)
    desk = Desk(api, files.policy_in_force, counted, complaints)
    return Stamp(listener, files, desk, settings.poll_seconds / 2)


def _health(listener: socket.socket, parts: Sequence[Part], counted: Metrics) -> Health:
    return Health(
        listener,
        live=lambda: {part.name: "" if part.alive() else "it does not come round" for part in parts},
        ready=lambda: {part.name: part.problem() for part in parts},
        registry=counted.registry,
    )


def plan(settings: Settings) -> Plan:
    """What `settings` want of certificates. An API server asks for the first name."""
    bases = [f"{name}.{settings.namespace}" for name in settings.services]
    return Plan(
        names=tuple(name for base in bases for name in (f"{base}.svc", f"{base}.svc.cluster.local", base)),
        leaf_life=settings.leaf_life,
        ca_life=settings.ca_life,
        grace=timedelta(seconds=settings.grace_seconds),
    )


def _started(part: Part, stop: Event) -> Thread:
    def run() -> None:
        try:
            part.run(stop)
        except Exception:  # its check of liveness will fail; the other parts go on
            LOG.exception("part ended", extra={"fields": {"part": part.name}})

    thread = Thread(target=run, name=part.name, daemon=True)
    thread.start()
    return thread


def _joined(threads: Iterable[Thread], seconds: float) -> None:
    """Waits until all threads have ended, `seconds` at most."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            said("part does not end", part=thread.name, seconds=seconds)

"""`drainproof controller`: puts its parts together, runs them side by side, and ends them in order."""

import contextlib
import functools
import secrets
import signal
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread
from typing import Any, Final

import click

from webhook import observe
from webhook.command import refuse
from webhook.controller import api as apis
from webhook.controller import discovery, findings, injection, rotation
from webhook.controller.api import Api
from webhook.controller.authority import Plan
from webhook.controller.discovery import Discovery
from webhook.controller.health import Health
from webhook.controller.injection import Injection, Service
from webhook.controller.lease import Lease, lease
from webhook.controller.ledger import Ledger
from webhook.controller.metrics import Complaints, Metrics, led_no_more, metrics
from webhook.controller.part import Part, Rounds
from webhook.controller.rotation import Rotation
from webhook.controller.secret import Secrets, secret
from webhook.controller.settings import Settings, options
from webhook.inforce import by_default
from webhook.listener import listening
from webhook.observe import LOG, said

END_SECONDS: Final = 5.0  # for what is under way when a signal comes, and again for giving up the Lease


@click.command()
@options
def controller(**given: Any) -> None:
    """Keeps the webhook's certificates, and the CA in its configurations, until SIGTERM or SIGINT.

    It makes a CA and a serving certificate, stores them in Secrets, replaces them before they expire
    without a moment in which the API server does not trust what a replica serves, and puts the CA
    back where something removes it. Of several replicas the one that holds the Lease works, and the
    others stand by. Exits with 0 after a signal, with 1 where it cannot listen, and with 2 where a
    setting is wrong or there is no way to an API server.

    \b
    Examples:
      drainproof controller --namespace drainproof
      drainproof controller --kubeconfig ~/.kube/config --leaf-life 720h
    """
    settings = Settings(**given)
    problems, api = list(settings.problems()), None
    try:
        api = apis.connect(settings.kubeconfig)
    except apis.ConnectionSettingsError as error:
        problems.append(str(error))
    if problems or api is None:
        refuse(problems)
    with contextlib.closing(listening(settings.host, settings.port)) as listener:
        observe.configure(settings.log_level)
        crew = composed(settings, api, listener)
        host, port = listener.getsockname()[:2]
        said("controller started", host=host, port=port, identity=crew.election.identity)
        crew.until_signalled()
    said("stopped")


@dataclass(frozen=True, slots=True)
class Crew:
    """All parts: those that work, and the election of who does, which ends after them."""

    election: Lease
    parts: Sequence[Part]

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
        """Runs everything until `stop` is set; then the parts end, and the Lease is given up last."""
        given_up = Event()
        working = [_started(part, stop) for part in self.parts]
        electing = _started(self.election, given_up)
        stop.wait()
        said("stopping")
        _joined(working)
        given_up.set()
        _joined([electing])


def composed(settings: Settings, api: Api, listener: socket.socket) -> Crew:
    """The parts that `settings` ask for. A later part is one more line in `working` or `beside`."""
    counted = metrics()
    complaints = Complaints(counted)
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    ledger = Ledger(by_default)
    place = lease(settings.namespace, settings.lease)
    election = Lease(api, place, identity, settings.lease_seconds, complaints, notes=ledger.annotations)
    counted.leader.set_function(lambda: float(election.leads()))
    service = Service(settings.namespace, settings.service)
    things = injection.configurations(settings.mutating, settings.validating)
    serving, ca = (secret(settings.namespace, name) for name in (settings.secret, settings.ca_secret))
    stored = Secrets(api, serving, ca, manager=f"drainproof-{identity}"[:128])
    rotating = Rotation(
        api, stored, things, service, plan(settings), settings.settle_seconds, election.leads, counted, complaints
    )
    injecting = Injection(api, things, service, stored.trusted, election.leads, counted, complaints)
    rounds = functools.partial(Rounds, seconds=settings.poll_seconds, leads=election.leads, complaints=complaints)
    working: list[Part] = [rounds(rotation.NAME, rotating.once), rounds(injection.NAME, injecting.once)]
    # What these cannot do is no reason to take the replica out of its Service: it goes on with everything else.
    beside: list[Part] = []
    if not settings.no_watch:
        beside += findings.parts(api, ledger, election, counted, complaints)
    facts = discovery.discovery(settings, api, election.leads, counted, complaints)
    if not settings.no_discovery:
        beside.append(rounds(discovery.NAME, facts.once, seconds=settings.discovery_seconds))
    election.on_lost = functools.partial(_lost, counted, facts)
    return Crew(election, [*working, *beside, _health(listener, [election, *working], beside, counted)])


def _lost(counted: Metrics, facts: Discovery) -> None:
    led_no_more(counted)
    facts.forget()


def _health(listener: socket.socket, parts: Sequence[Part], beside: Sequence[Part], counted: Metrics) -> Health:
    return Health(
        listener,
        live=lambda: {part.name: "" if part.alive() else "it does not come round" for part in (*parts, *beside)},
        ready=lambda: {part.name: part.problem() for part in parts},
        registry=counted.registry,
    )


def plan(settings: Settings) -> Plan:
    """What `settings` want of certificates. An API server asks for the first name."""
    base = f"{settings.service}.{settings.namespace}"
    return Plan(
        names=(f"{base}.svc", f"{base}.svc.cluster.local", base),
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


def _joined(threads: Iterable[Thread]) -> None:
    for thread in threads:
        thread.join(END_SECONDS)
        if thread.is_alive():
            said("part does not end", part=thread.name, seconds=END_SECONDS)

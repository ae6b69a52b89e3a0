"""`drainproof controller`: puts its parts together and runs them."""

import contextlib
import secrets
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import click

from webhook import observe, policyfile
from webhook.command import refuse
from webhook.controller import api as apis
from webhook.controller import discovery, findings, injection, rotation
from webhook.controller import policy as policies
from webhook.controller.api import Api
from webhook.controller.authority import Plan
from webhook.controller.crew import Crew
from webhook.controller.deletion import Desk
from webhook.controller.discovery import Discovery
from webhook.controller.health import Health
from webhook.controller.injection import Injection, Service
from webhook.controller.lease import Lease, lease
from webhook.controller.ledger import Ledger
from webhook.controller.metrics import Complaints, Metrics, led_no_more, metrics
from webhook.controller.part import Part, Rounds
from webhook.controller.policy import Chosen
from webhook.controller.rotation import Rotation
from webhook.controller.secret import Secrets, secret
from webhook.controller.settings import Settings, options
from webhook.controller.stamp import Files, Stamp
from webhook.core import policy
from webhook.listener import bound, listening
from webhook.observe import said
from webhook.rules import RULES
from webhook.watched import Watched


@click.command()
@options
def controller(**given: Any) -> None:
    """Keeps certificates and facts for the webhook, and watches its Jobs, until SIGTERM or SIGINT.

    It makes a CA and a serving certificate, stores them in Secrets, replaces them before they expire
    without a moment in which the API server does not trust what a replica serves, and puts the CA
    back where something removes it. It keeps Karpenter's version and the limits of NodePools in a
    ConfigMap, and makes an Event on each Job that counts a Pod as a success which was stopped with
    nobody vouching for its work. Of several replicas the one that holds the Lease works, and the
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


def composed(settings: Settings, api: Api, listener: socket.socket, stamping: socket.socket | None = None) -> Crew:
    """The parts that `settings` ask for. A later part is one more line in `working` or `beside`."""
    counted = metrics()
    complaints = Complaints(counted)
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    chosen, default = _policy(settings), policy.default(RULES)
    ledger = Ledger(lambda: policies.in_force(chosen) or default)
    place = lease(settings.namespace, settings.lease)
    election = Lease(api, place, identity, settings.lease_seconds, complaints, notes=ledger.annotations)
    counted.leader.set_function(lambda: float(election.leads()))
    facts = discovery.discovery(settings, api, election.leads, counted, complaints)
    election.on_lost = partial(_lost, counted, facts)
    working: list[Part] = []
    if settings.certificates == "own":
        working += _certificates(settings, api, election, counted, complaints)
    answering = [_stamp(settings, api, stamping, chosen, counted, complaints)] if stamping else []
    # What these cannot do is no reason to send no deletions to this replica: it goes on with everything else.
    beside: list[Part] = []
    if not settings.no_watch:
        beside += findings.parts(api, ledger, election, counted, complaints)
    if not settings.no_discovery:
        beside.append(Rounds(discovery.NAME, facts.once, settings.discovery_seconds, election.leads, complaints))
    if not stamping and settings.policy:
        look = partial(policies.look, chosen)
        beside.append(Rounds(policies.NAME, look, settings.poll_seconds / 2, lambda: True, complaints))
    health = _health(listener, [election, *working, *answering], beside, counted)
    return Crew(election, [*working, *beside, health], answering)


def _policy(settings: Settings) -> Chosen:
    if settings.policy is None:
        return policy.default(RULES)
    chosen = Watched(settings.policy, partial(policyfile.stated, rules=RULES))
    policies.look(chosen)
    return chosen


def _lost(counted: Metrics, facts: Discovery) -> None:
    led_no_more(counted)
    facts.forget()


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


def _stamp(
    settings: Settings, api: Api, listener: socket.socket, chosen: Chosen, counted: Metrics, complaints: Complaints
) -> Stamp:
    assert settings.pair is not None  # else there is no listener
    files = Files(settings.pair, settings.client_ca, chosen)
    desk = Desk(api, files.policy_in_force, counted, complaints)
    return Stamp(listener, files, desk, settings.poll_seconds / 2)


def _health(listener: socket.socket, parts: Sequence[Part], beside: Sequence[Part], counted: Metrics) -> Health:
    return Health(
        listener,
        live=lambda: {part.name: "" if part.alive() else "it does not come round" for part in (*parts, *beside)},
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

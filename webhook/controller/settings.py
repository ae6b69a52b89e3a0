"""What `drainproof controller` can be told: one table that gives flags, variables, defaults and the docs."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from webhook import flags
from webhook.core import duration
from webhook.flags import FILE, LOG_LEVEL, Command, flag, given_to, row
from webhook.tls import Pair


class _Life(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            life = timedelta(microseconds=duration.parse(value) // 1000)
        except duration.DurationError as error:
            self.fail(f"{value!r} is no duration such as 2160h: {error}", param, ctx)
        if not timedelta(seconds=3) <= life <= timedelta(days=36500):
            self.fail(f"{value!r} is not between 3s and 876000h", param, ctx)
        return life


class _Names(click.ParamType[tuple[str, ...]]):
    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        del param, ctx
        return value if isinstance(value, tuple) else tuple(filter(None, (name.strip() for name in value.split(","))))


_LIFE: Final = _Life()
_NAMES: Final = _Names()

_KUBECONFIG: Final = row(FILE, "File that says how to reach the API server.", "the account of the Pod")
_NAMESPACE: Final = row(click.STRING, "Namespace of the Service, the Secrets and the Lease.")
_SERVICE: Final = row(click.STRING, "Service that the webhooks are called by.")
_CONTROLLER_SERVICE: Final = row(click.STRING, "Service that /stamp of this controller is called by.")
_CERTIFICATES: Final = row(
    click.Choice(["own", "external"]),
    "Who makes the certificates: this controller (own), or cert-manager or the like (external).",
)
_SECRET: Final = row(click.STRING, "Secret for the serving certificate; the webhook mounts it.")
_CA_SECRET: Final = row(click.STRING, "Secret for the CA and its key; nobody mounts it.")
_LEASE: Final = row(click.STRING, "Lease whose holder leads.")
_MUTATING: Final = row(_NAMES, "Mutating webhook configurations, with commas between.")
_VALIDATING: Final = row(_NAMES, "Validating webhook configurations, with commas between.")
_LEAF_LIFE: Final = row(_LIFE, "How long a serving certificate lasts; it is replaced at two thirds.")
_CA_LIFE: Final = row(_LIFE, "How long a CA lasts; it is replaced at two thirds.")
_GRACE: Final = row(
    click.IntRange(1, 86400),
    "Seconds after which a replica that does not answer counts as serving the new certificate.",
)
_SETTLE: Final = row(click.FloatRange(0, 600), "Seconds for every API server to learn of a new CA before it is used.")
_POLL: Final = row(click.FloatRange(0.1, 60), "Seconds between two looks at what is to be kept.")
_LEASE_SECONDS: Final = row(
    click.IntRange(3, 600), "Seconds after which another replica leads in the place of one that is gone."
)
_FACTS: Final = row(click.STRING, "ConfigMap for the facts found about the cluster; the webhook mounts it.")
_KARPENTER: Final = row(_NAMES, "Deployments, as namespace/name with commas between, that tell Karpenter's version.")
_DISCOVERY: Final = row(click.FloatRange(0.1, 3600), "Seconds between two looks for facts.")
_NO_DISCOVERY: Final = row(click.BOOL, "Leave the ConfigMap of facts alone.")
_NO_WATCH: Final = row(click.BOOL, "Do not watch Pods for Jobs that were Complete with their work undone.")
_HOST: Final = row(click.STRING, "Address to answer on; :: takes IPv4 and IPv6.")
_PORT: Final = row(click.IntRange(0, 65535), "Port of /healthz, /readyz and /metrics; 0 takes a free one.")
_POLICY: Final = row(
    FILE, "File with the policy (YAML or JSON) for /stamp and for Pods that are watched.", "the default policy"
)
_CERTIFICATE: Final = row(
    FILE, "File with the certificate of /stamp (PEM), the leaf first; it may come later.", "no /stamp"
)
_KEY: Final = row(FILE, "File with the key of that certificate (PEM, without a passphrase).", "no /stamp")
_CLIENT_CA: Final = row(
    FILE, "File with CAs (PEM): only clients with a certificate of theirs get /stamp answered.", "anyone does"
)
_STAMP_PORT: Final = row(click.IntRange(0, 65535), "Port of /stamp; 0 takes a free one and says which.")
_LOG_LEVEL: Final = row(LOG_LEVEL, "The least severe log lines that are written.")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, in the order in which help and docs show them."""

    kubeconfig: Path | None = field(default=None, metadata=_KUBECONFIG)
    namespace: str = field(default="drainproof", metadata=_NAMESPACE)
    service: str = field(default="drainproof", metadata=_SERVICE)
    controller_service: str = field(default="drainproof-controller", metadata=_CONTROLLER_SERVICE)
    certificates: str = field(default="own", metadata=_CERTIFICATES)
    secret: str = field(default="drainproof-tls", metadata=_SECRET)
    ca_secret: str = field(default="drainproof-ca", metadata=_CA_SECRET)
    lease: str = field(default="drainproof-controller", metadata=_LEASE)
    mutating: tuple[str, ...] = field(default=("drainproof",), metadata=_MUTATING)
    validating: tuple[str, ...] = field(default=("drainproof",), metadata=_VALIDATING)
    leaf_life: timedelta = field(default=timedelta(days=90), metadata=_LEAF_LIFE)
    ca_life: timedelta = field(default=timedelta(days=1825), metadata=_CA_LIFE)
    grace_seconds: int = field(default=600, metadata=_GRACE)
    settle_seconds: float = field(default=5.0, metadata=_SETTLE)
    poll_seconds: float = field(default=5.0, metadata=_POLL)
    lease_seconds: int = field(default=15, metadata=_LEASE_SECONDS)
    facts: str = field(default="drainproof-facts", metadata=_FACTS)
    karpenter: tuple[str, ...] = field(default=("kube-system/karpenter", "karpenter/karpenter"), metadata=_KARPENTER)
    discovery_seconds: float = field(default=60.0, metadata=_DISCOVERY)
    no_discovery: bool = field(default=False, metadata=_NO_DISCOVERY)
    no_watch: bool = field(default=False, metadata=_NO_WATCH)
    host: str = field(default="0.0.0.0", metadata=_HOST)
    port: int = field(default=8080, metadata=_PORT)
    policy: Path | None = field(default=None, metadata=_POLICY)
    certificate: Path | None = field(default=None, metadata=_CERTIFICATE)
    key: Path | None = field(default=None, metadata=_KEY)
    client_ca: Path | None = field(default=None, metadata=_CLIENT_CA)
    stamp_port: int = field(default=8443, metadata=_STAMP_PORT)
    log_level: str = field(default="info", metadata=_LOG_LEVEL)

    @property
    def services(self) -> tuple[str, ...]:
        """The Services that our certificate is for, the webhook's first."""
        return tuple(dict.fromkeys((self.service, self.controller_service)))

    @property
    def pair(self) -> Pair | None:
        """What /stamp is served with; None where it is not served."""
        return Pair(self.certificate, self.key) if self.certificate and self.key else None

    def problems(self) -> Iterator[str]:
        """What does not go together."""
        if self.ca_life < 3 * self.leaf_life:
            yield "--ca-life must be at least three times --leaf-life, for a CA is replaced at two thirds of its life"
        if self.secret == self.ca_secret:
            yield "--secret and --ca-secret name the same Secret, and the webhook must not see the CA's key"
        if not self.mutating and not self.validating:
            yield "neither --mutating nor --validating names a webhook configuration"
        if (self.certificate is None) is not (self.key is None):
            yield "--certificate and --key belong together: give both, and /stamp is served, or neither"
        if self.client_ca and not self.pair:
            yield "--client-ca says who may ask at /stamp, which is served only with --certificate and --key"
        for name in self.karpenter:
            if not all(name.partition("/")) or name.count("/") > 1:
                yield f"--karpenter: {name} is no Deployment such as kube-system/karpenter"
        yield from (f"{flag(one)} is empty" for one in fields(self) if getattr(self, one.name) == "")


def options(command: Command) -> Command:
    """Gives a click command every setting as an option."""
    return given_to(command, Settings)


def table() -> str:
    """The settings as a Markdown table."""
    return flags.table(Settings)

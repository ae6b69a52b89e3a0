"""What `drainproof serve` can be told: one table that gives flags, environment variables, defaults and the docs."""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from webhook import flags
from webhook.flags import FILE, LOG_LEVEL, PREFIX, Command, flag, given_to, row


class _Collector(click.ParamType[str]):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            url = urlsplit(value)
            good = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not url.username
        except ValueError:
            good = False
        if not good:
            self.fail(f"{value!r} is no URL such as http://collector.example:4318, without a user's name", param, ctx)
        return str(value if url.path.strip("/") else url._replace(path="/v1/traces").geturl())


_HOST: Final = row(click.STRING, "Address to listen on; :: takes IPv4 and IPv6.", "0.0.0.0, with --dev 127.0.0.1")
_PORT: Final = row(click.IntRange(0, 65535), "Port to listen on; 0 takes a free one and says which.")
_CERTIFICATE: Final = row(FILE, "File with the serving certificate (PEM), the leaf first.")
_KEY: Final = row(FILE, "File with the key of the certificate (PEM, without a passphrase).")
_CLIENT_CA: Final = row(
    FILE, "File with CAs (PEM): only clients with a certificate of theirs get reviews answered.", "anyone does"
)
_POLICY: Final = row(FILE, "File with the policy (YAML or JSON).", "the default policy")
_FACTS: Final = row(
    FILE, "File with facts about the cluster for a policy that says auto; it may come later.", "none are known"
)
_RELOAD: Final = row(
    click.FloatRange(0.02, 3600), "Seconds within which a change to the files of certificate, policy or facts counts."
)
_DEV: Final = row(click.BOOL, "Make a certificate for localhost that lasts as long as the server.")
_DRAIN: Final = row(click.IntRange(0, 3600), "Seconds to go on answering after SIGTERM, while readiness already fails.")
_KEEP_ALIVE: Final = row(
    click.IntRange(1, 86400), "Seconds to keep an idle connection; above the 90 after which API servers drop it."
)
_TRACES: Final = row(
    _Collector(),
    "Collector (OTLP over HTTP) for a span of each decided review; needs the extra `traces`.",
    "no spans are made",
)
_LOG_LEVEL: Final = row(LOG_LEVEL, "The least severe log lines that are written.")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, in the order in which help and docs show them."""

    host: str | None = field(default=None, metadata=_HOST)
    port: int = field(default=8443, metadata=_PORT)
    certificate: Path | None = field(default=None, metadata=_CERTIFICATE)
    key: Path | None = field(default=None, metadata=_KEY)
    client_ca: Path | None = field(default=None, metadata=_CLIENT_CA)
    policy: Path | None = field(default=None, metadata=_POLICY)
    facts: Path | None = field(default=None, metadata=_FACTS)
    reload_seconds: float = field(default=2, metadata=_RELOAD)
    dev: bool = field(default=False, metadata=_DEV)
    drain_seconds: int = field(default=10, metadata=_DRAIN)
    keep_alive_seconds: int = field(default=120, metadata=_KEEP_ALIVE)
    traces: str | None = field(default=None, metadata=_TRACES)
    log_level: str = field(default="info", metadata=_LOG_LEVEL)

    @property
    def address(self) -> str:
        """The address to listen on."""
        return self.host or ("127.0.0.1" if self.dev else "0.0.0.0")

    def problems(self) -> Iterator[str]:
        """What does not go together."""
        given = [
            flag(setting) for setting in fields(self) if setting.name in ("certificate", "key") and self._has(setting)
        ]
        if self.dev and given:
            yield f"--dev makes its own certificate: leave out {' and '.join(given)}, or leave out --dev"
        if not self.dev and len(given) < 2:
            yield (
                "there is no certificate to serve with: give --certificate and --key "
                f"(or {PREFIX}CERTIFICATE and {PREFIX}KEY), or --dev to try things out"
            )

    def _has(self, setting: "Field[Any]") -> bool:
        return getattr(self, setting.name) is not None


def options(command: Command) -> Command:
    """Gives a click command every setting as an option."""
    return given_to(command, Settings)


def table() -> str:
    """The settings as a Markdown table."""
    return flags.table(Settings)

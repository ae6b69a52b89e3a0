"""Audit annotations: what the API server's audit log says of what became of an object, and why."""

from collections.abc import Iterable
from typing import Final

from webhook.core.ruleset import Mode
from webhook.core.verdict import Notice, Verdict

LONGEST: Final = 60  # characters of a reason where many are kept: in metrics and in the audit log


def annotations(verdict: Verdict, mended: Iterable[str]) -> dict[str, str]:
    """What there is to say, by key; `mended` are the rules that changed the object.

    The API server files each under `<name of the webhook>/<key>`, so that a key has no slash
    (Kubernetes 1.37.2 staging apiserver pkg/admission/attributes.go checkKeyFormat).
    """
    told = {
        "mended": ",".join(mended),
        "denied": ",".join(ids(verdict.denied)),
        "warned": ",".join(ids(verdict.warned)),
        "exempt": "; ".join(f"{one.rule}: {brief(one.reason)}" for one in verdict.exempt),
    }
    found = {key: text for key, text in told.items() if text}
    return {**found, "mode": Mode.MONITOR.value} if found and verdict.monitored else found


def ids(notices: Iterable[Notice]) -> list[str]:
    """The rules that notices are of, each once."""
    return list(dict.fromkeys(notice.rule for notice in notices))


def brief(reason: str, longest: int = LONGEST) -> str:
    """An author's reason as one line that can be printed, cut to `longest` characters."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(reason[: 2 * longest].split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"

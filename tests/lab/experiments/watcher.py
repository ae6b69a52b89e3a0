"""What drainproof's controller has to say about a Job that completed with its work undone."""

from contextlib import suppress
from typing import Any, Final

from tests.lab.bench import Trial
from tests.lab.experiment import Claim, equal
from tests.lab.record import RecordError

REASON: Final = "CompletedUndone"
REPORTER: Final = "drainproof-controller"
SECONDS: Final = 30


def claims(trial: Trial) -> tuple[Claim, ...]:
    """That there is one Event about the Job, and what it says of itself; waits for it."""
    with suppress(RecordError):  # the claims say that it did not come
        trial.bench.record.until(lambda: _events(trial), f"an Event {REASON}", SECONDS)
    found = _events(trial)
    return (
        equal(f"Events {REASON} on the Job", len(found), 1),
        equal("they are", ", ".join(f"{one['type']} of {_reporter(one)}" for one in found), f"Warning of {REPORTER}"),
    )


def _events(trial: Trial) -> list[Any]:
    """The last state of each Event with REASON about the trial's Job."""
    latest = {seen.object["metadata"]["uid"]: seen.object for seen in list(trial.bench.record.events)}
    return [one for one in latest.values() if one["reason"] == REASON and _is_about(one["involvedObject"], trial)]


def _is_about(named: Any, trial: Trial) -> bool:
    return (named["kind"], named["namespace"], named["name"]) == (trial.kind, trial.namespace, trial.name)


def _reporter(event: Any) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component", ""))

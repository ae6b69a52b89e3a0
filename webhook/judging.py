"""Objects from files under a policy: what both webhooks together would make of each, and what is to be said of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webhook.core import engine
from webhook.core.defaults import defaulted
from webhook.core.engine import RuleError, Verdict
from webhook.core.patch import Path, Put, Step, Wish, at, dotted, entries, grant
from webhook.core.policy import Policy
from webhook.core.rule import Level
from webhook.core.workload import named, view
from webhook.report.finding import Finding
from webhook.source.document import Complaint, Document, Item, Source


@dataclass(frozen=True, slots=True)
class Judged:
    """One object, what came of it, and the wishes that mutation would grant on the author's own document."""

    file: str
    document: Document
    item: Item
    verdict: Verdict
    wishes: tuple[Wish, ...]

    @property
    def own(self) -> Any:
        """The object as its author wrote it."""
        return at(self.document.data, self.item.path)

    @property
    def subject(self) -> dict[str, Any]:
        """What names the object in a report."""
        metadata = self.item.data.get("metadata")
        return {
            "file": self.file,
            "line": self.item.line,
            "kind": self.item.data["kind"],
            "namespace": str(at(metadata, ("namespace",)) or ""),
            "name": named(self.item.data),
        }


def judged(source: Source, policy: Policy) -> Iterator[Judged | Complaint]:
    """Each object of a source with its verdict; a complaint where a rule raised, which is a fault of ours."""
    for document in source.documents:
        for item in document.items:
            try:
                yield _judged(source.name, document, item, policy)
            except RuleError as error:
                yield Complaint(source.name, item.line, f"{error}; that is a fault of drainproof's, please report it")


def _judged(file: str, document: Document, item: Item, policy: Policy) -> Judged:
    seen = defaulted(item.data)
    verdict = engine.foresee(seen, policy)
    workload = view(seen)
    rewritten = workload is not None and (not workload.is_deferred or policy.ruleset.context.rewrites_cron_jobs)
    wishes = tuple(_in_own_words(wish, item.data, seen) for wish in verdict.wishes) if rewritten else ()
    return Judged(file, document, item, verdict, wishes)


def _in_own_words(wish: Wish, own: Any, seen: Any) -> Wish:
    """The wish for a list with items put in front, with the rest as the author wrote it and not as it was defaulted."""
    if not isinstance(wish, Put) or not isinstance(wish.value, list):
        return wish
    rest, written = entries(seen, *wish.path), entries(own, *wish.path)
    count = len(wish.value) - len(rest)
    if not rest or len(rest) != len(written) or wish.value[count:] != rest:
        return wish
    return Put(wish.path, [*wish.value[:count], *written], wish.recorded)


def patched(judgement: Judged) -> tuple[Any, list[Step]]:
    """The author's own object with the wishes come true, and the RFC 6902 steps from the one to the other."""
    current: Any = judgement.own
    steps: list[Step] = []
    for wish in judgement.wishes:
        granted = grant(current, wish)
        if granted is not None:
            current, steps = granted[0], steps + granted[1]
    return current, steps


def findings(judgement: Judged) -> Iterator[Finding]:
    """What is said of an object; each finding has the line of the field that it speaks of."""
    subject = judgement.subject
    for notice in judgement.verdict.notices:
        where: Path = (*judgement.item.path, *notice.path)
        yield Finding(
            **{**subject, "line": judgement.document.line_of(where)},
            rule=notice.rule,
            level=str(notice.level),
            path=dotted(notice.path),
            message=notice.message,
        )


@dataclass(slots=True)
class Tally:
    """How many objects were read, and what came of them."""

    read: int = 0
    judged: int = 0
    denied: int = 0
    warned: int = 0
    mended: int = 0

    def count(self, judgement: Judged) -> None:
        """Adds one object."""
        levels = {notice.level for notice in judgement.verdict.notices}
        self.read += 1
        self.judged += not judgement.verdict.left
        self.denied += Level.DENY in levels
        self.warned += Level.WARN in levels
        self.mended += bool(judgement.wishes)

    def __str__(self) -> str:
        objects = "1 object" if self.read == 1 else f"{self.read} objects"
        return f"{objects} read, {self.judged} judged, {self.denied} denied, {self.warned} warned, {self.mended} mended"

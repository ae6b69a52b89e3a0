"""Evaluate: an object and a policy in, a verdict out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.core import record
from webhook.core.declaration import IGNORE
from webhook.core.patch import MISSING, Path, Put, Step, Wish, at, grant
from webhook.core.policy import Policy
from webhook.core.rule import Finding, Level, Rule, sentence
from webhook.core.workload import Json, Workload, look, view

JOB_CONTROLLER: Final = "kubernetes.io/job-controller"  # Kubernetes 1.37.2 staging api batch/v1 JobControllerName


class RuleError(Exception):
    """A rule that raised: a bug of ours, never of the object's."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(f"the rule {rule} raised")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that the author, or the operator, is told."""

    rule: str
    level: Level
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an object.

    `steps` lead from the object received to `object`, and `wishes` say the same apart from that object. `mended` names
    the rules that changed something; `left` says why no rule looked at the object at all.
    """

    object: Any
    steps: tuple[Step, ...] = ()
    wishes: tuple[Wish, ...] = ()
    notices: tuple[Notice, ...] = ()
    mended: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()
    left: str = ""

    @property
    def denied(self) -> tuple[Notice, ...]:
        """The notices for which the object is refused."""
        return tuple(notice for notice in self.notices if notice.level is Level.DENY)

    @property
    def warned(self) -> tuple[Notice, ...]:
        """The notices that come with an object that is let through."""
        return tuple(notice for notice in self.notices if notice.level is Level.WARN)


def mutate(document: Any, policy: Policy, old: Any = None) -> Verdict:
    """What mutation makes of an object that is created, or of one that is updated from `old`."""
    workload = view(document)
    if workload is None:
        return Verdict(document, left="kind")
    if old is not None:
        return _put_back(workload, old, policy)
    if not workload.is_mended or (workload.is_deferred and not policy.context.rewrites_cron_jobs):
        return Verdict(document, left="judged only")
    return _Judgement(policy, workload).mended()


def validate(document: Any, policy: Policy, old: Any = None) -> Verdict:
    """What is to be said of an object as it stands; with `old`, only what the update brought in."""
    workload = view(document)
    if workload is None:
        return Verdict(document, left="kind")
    if workload.is_deferred:  # judged by what its Jobs will be like
        return _without_known(_foresee(workload, policy), old, policy)
    return _without_known(_Judgement(policy, workload).judged(), old, policy)


def foresee(document: Any, policy: Policy) -> Verdict:
    """What both webhooks together would make of an object that is created: mended first, then judged."""
    workload = view(document)
    return Verdict(document, left="kind") if workload is None else _foresee(workload, policy)


def _foresee(workload: Workload, policy: Policy) -> Verdict:
    if not workload.is_mended:
        return _Judgement(policy, workload).judged()
    mended = _Judgement(policy, workload).mended()
    standing = _Judgement(policy, look(mended.object, workload.kind)).judged()
    return replace(mended, notices=mended.notices + standing.notices)


def _without_known(verdict: Verdict, old: Any, policy: Policy) -> Verdict:
    """The verdict without what the old object already had: an update answers only for what it changes."""
    if old is None or not verdict.notices:
        return verdict
    known = {(notice.rule, notice.message) for notice in validate(old, policy).notices}
    return replace(verdict, notices=tuple(n for n in verdict.notices if (n.rule, n.message) not in known))


def _put_back(workload: Workload, old: Any, policy: Policy) -> Verdict:
    mend = _Mend(workload)
    if not _is_going(workload):
        mend.take(record.put_back(workload, old, policy.rules))
    return Verdict(mend.root, tuple(mend.steps), tuple(mend.wishes), left="update")


def _is_going(workload: Workload) -> bool:
    return at(workload.root, ("metadata", "deletionTimestamp")) is not None


class _Judgement:
    """One object under one policy: which rules concern it, and what they make of it."""

    def __init__(self, policy: Policy, workload: Workload) -> None:
        self.policy = policy
        self.workload = workload
        self.left = _left_alone(workload, policy)
        self.exempt = () if self.left else tuple(_exempt(workload, policy))
        self.rules = () if self.left else policy.rules
        self.context = policy.context
        if self.exempt:
            self.rules = tuple(rule for rule in policy.rules if rule.id not in self.exempt)
            self.context = replace(policy.context, mending=policy.context.mending.difference(self.exempt))

    def findings(self, rule: Rule, workload: Workload) -> Sequence[Finding]:
        try:
            return list(rule.check(workload, self.policy.settings[rule.id].options, self.context))
        except Exception as error:
            raise RuleError(rule.id) from error

    def judged(self) -> Verdict:
        """The findings that stand."""
        notices = [
            self.notice(rule, f, f.text) for rule in self.rules for f in self.findings(rule, self.workload) if f.text
        ]
        return Verdict(
            self.workload.root,
            notices=tuple(notice for notice in notices if notice.level is not Level.IGNORE),
            exempt=self.exempt,
            left=self.left,
        )

    def notice(self, rule: Rule, finding: Finding, text: str, advice: bool = False) -> Notice:
        level = self.policy.settings[rule.id].level
        if level is Level.DENY and (finding.advice or advice):
            level = Level.WARN
        return Notice(rule.id, level, finding.path, sentence(finding.path, text, rule.id))

    def mended(self) -> Verdict:
        """The object with every fix that is due, and what has to be said about them."""
        mend = _Mend(self.workload)
        notices: list[Notice] = []
        rules: list[str] = []
        for rule in (rule for rule in self.rules if self.policy.settings[rule.id].fix):
            for finding in self.findings(rule, mend.workload):
                if finding.wishes and mend.granted(finding.wishes):
                    rules.append(rule.id)
                    if finding.mended:
                        notices.append(self.notice(rule, finding, finding.mended, advice=True))
        if not mend.recorded():
            return Verdict(self.workload.root, exempt=self.exempt, left=self.left or "no room for the record")
        return Verdict(
            mend.root,
            tuple(mend.steps),
            tuple(mend.wishes),
            tuple(notice for notice in notices if notice.level is not Level.IGNORE),
            tuple(dict.fromkeys(rules)),
            self.exempt,
            self.left,
        )


class _Mend:
    """An object that is being mended: as it stands, the steps so far, and what they replaced."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.root: Any = workload.root
        self.steps: list[Step] = []
        self.wishes: list[Wish] = []
        self.replaced: dict[Path, Any] = {}

    def granted(self, wishes: Sequence[Wish]) -> bool:
        """Whether all of the wishes could be granted and changed something; if not, none of them is."""
        before = self.root
        if not self.take(wishes) or self.root is before:
            return False
        self.workload = look(self.root, self.workload.kind)
        self.replaced |= dict(_replaced(before, wishes))
        return True

    def take(self, wishes: Sequence[Wish]) -> bool:
        """Moves on to the object with the wishes come true; False, and nothing done, where one cannot be granted."""
        current = self.root
        steps: list[Step] = []
        for wish in wishes:
            result = grant(current, wish)
            if result is None:
                return False
            current, steps = result[0], steps + result[1]
        self.root, self.steps, self.wishes = current, self.steps + steps, [*self.wishes, *wishes]
        return True

    def recorded(self) -> bool:
        """Writes the record of what was replaced; False where the annotations would outgrow what Kubernetes takes."""
        if self.replaced and not self.take([record.written(self.root, self.replaced)]):
            return False
        return not self.steps or record.fits(self.root, self.workload.kind)


def _replaced(document: Any, wishes: Sequence[Wish]) -> Iterator[tuple[Path, Any]]:
    """What the author wrote where a wish puts another value that has to be recorded."""
    for wish in wishes:
        if isinstance(wish, Put) and wish.recorded:
            value = at(document, wish.path, MISSING)
            if value is not MISSING and value != wish.value:
                yield wish.path, value


def _left_alone(workload: Workload, policy: Policy) -> str:
    """Why no rule concerns an object; empty where the rules do."""
    if _is_going(workload):
        return "deleted"
    owner = workload.controller
    if owner and not (workload.kind.name == "Job" and owner in policy.owners):
        return "owner"
    manager = workload.job.get("managedBy")
    return "managedBy" if manager is not None and manager != JOB_CONTROLLER else ""


def _exempt(workload: Workload, policy: Policy) -> Iterator[str]:
    """The ids of the rules from which an object's author exempts it, each with a reason that is not empty."""
    declarations: Json = workload.declarations
    everything = _reason(declarations, IGNORE)
    for rule in policy.rules:
        if rule.exemptible and (everything or _reason(declarations, f"{IGNORE}.{rule.id}")):
            yield rule.id


def _reason(declarations: Mapping[str, Any], key: str) -> str:
    value = declarations.get(key, ((), ""))[1]
    return value.strip() if isinstance(value, str) else ""

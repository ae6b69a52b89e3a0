"""One object under one policy: which rules concern it, and what they make of it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from webhook.core.declaration import IGNORE
from webhook.core.mend import Mend
from webhook.core.patch import at
from webhook.core.rule import Finding, Level, Rule, sentence
from webhook.core.ruleset import Policy, Ruleset
from webhook.core.verdict import Exempted, Notice, RuleError, Verdict
from webhook.core.workload import Workload

JOB_CONTROLLER: Final = "kubernetes.io/job-controller"  # Kubernetes 1.37.2 staging api batch/v1 JobControllerName


class Judgement:
    """A workload with the rules that concern it in its namespace."""

    def __init__(self, policy: Policy, workload: Workload, namespace: str) -> None:
        ruleset = policy.ruleset_for(namespace)
        self.workload = workload
        self.settings = ruleset.settings
        self.left = _left_alone(workload, policy)
        self.exempt = () if self.left else tuple(exemptions(workload, policy, ruleset, namespace))
        self.rules = () if self.left else ruleset.rules[workload.kind.name]
        self.context = ruleset.context
        if self.exempt:
            self._leave_out({one.rule for one in self.exempt})

    def _leave_out(self, exempt: set[str]) -> None:
        if "*" in exempt:
            self.left, self.rules = "exempt", ()
        self.rules = tuple(rule for rule in self.rules if rule.id not in exempt)
        self.context = replace(
            self.context,
            mending=self.context.mending.difference(exempt),
            heard=self.context.heard.difference(exempt),
        )

    def judged(self) -> Verdict:
        """The findings that stand."""
        notices = [
            self._notice(rule, f, f.text) for rule in self.rules for f in self._findings(rule, self.workload) if f.text
        ]
        return Verdict(self.workload.root, notices=_heard(notices), exempt=self.exempt, left=self.left)

    def mended(self) -> Verdict:
        """The object with every fix that is due, and what has to be said about them."""
        mend = Mend(self.workload)
        notices: list[Notice] = []
        rules: list[str] = []
        for rule in (rule for rule in self.rules if self.settings[rule.id].fix):
            for finding in self._findings(rule, mend.workload):
                if finding.wishes and mend.granted(finding.wishes):
                    rules.append(rule.id)
                    if finding.mended:
                        notices.append(self._notice(rule, finding, finding.mended, is_done=True))
        if not mend.recorded():
            return Verdict(self.workload.root, exempt=self.exempt, left=self.left or "no room for the record")
        return Verdict(
            mend.root,
            tuple(mend.steps),
            tuple(mend.wishes),
            _heard(notices),
            tuple(dict.fromkeys(rules)),
            self.exempt,
            self.left,
        )

    def _findings(self, rule: Rule, workload: Workload) -> Sequence[Finding]:
        try:
            return list(rule.check(workload, self.settings[rule.id].options, self.context))
        except Exception as error:
            raise RuleError(rule.id) from error

    def _notice(self, rule: Rule, finding: Finding, text: str, is_done: bool = False) -> Notice:
        """What is said of a finding. What is mended already, and what is only advice, refuses nothing."""
        level = self.settings[rule.id].level
        if level is Level.DENY and (finding.advice or is_done):
            level = Level.WARN
        return Notice(rule.id, level, finding.path, sentence(finding.path, text, rule.id))


def is_going(workload: Workload) -> bool:
    """Whether an object is being deleted."""
    return at(workload.root, ("metadata", "deletionTimestamp")) is not None


def _heard(notices: list[Notice]) -> tuple[Notice, ...]:
    return tuple(notice for notice in notices if notice.level is not Level.IGNORE)


def _left_alone(workload: Workload, policy: Policy) -> str:
    """Why no rule concerns an object; empty where the rules do."""
    if is_going(workload):
        return "deleted"
    owner = workload.controller
    if owner and not (workload.kind.name == "Job" and owner in policy.owners):
        return "owner"
    manager = workload.job.get("managedBy")
    return "managedBy" if manager is not None and manager != JOB_CONTROLLER else ""


def exemptions(workload: Workload, policy: Policy, ruleset: Ruleset, namespace: str) -> Iterator[Exempted]:
    """The exemptions that take effect: the operator's, and those of the author that give a reason."""
    ours = policy.exemption(workload, namespace) if policy.exempt else None
    if ours:
        yield Exempted("*", ours.reason or "policy")
    elif workload.declarations:
        everything = _reason(workload, IGNORE)
        if everything:
            yield Exempted("*", everything)
        for rule in ruleset.rules[workload.kind.name]:
            reason = _reason(workload, f"{IGNORE}.{rule.id}") if rule.exemptible else ""
            if reason:
                yield Exempted(rule.id, reason)


def _reason(workload: Workload, key: str) -> str:
    value = workload.declarations.get(key, ((), ""))[1]
    return value.strip() if isinstance(value, str) else ""

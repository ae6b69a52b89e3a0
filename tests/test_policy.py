"""A policy document is read whole, or refused with everything that is wrong with it."""

from typing import Any

import pytest

from tests.tables import policy_of
from webhook.core import option, policy
from webhook.core.duration import SECOND
from webhook.core.policy import PolicyError, load
from webhook.core.rule import Level
from webhook.rules import RULES

HEAD = {"apiVersion": "drainproof.dev/v1", "kind": "Policy"}

# A document, and every problem in it as it is reported.
WRONG: list[tuple[Any, list[str]]] = [
    (None, ["the document: it must be a map with apiVersion, kind and rules"]),
    ([], ["the document: it must be a map with apiVersion, kind and rules"]),
    (
        {},
        [
            "apiVersion: null is not known; write drainproof.dev/v1",
            "kind: null is not known; write Policy",
        ],
    ),
    ({**HEAD, "kind": "policy"}, ['kind: "policy" is not known; write Policy']),
    ({**HEAD, "rule": {}}, ["rule: there is no such field; did you mean rules?"]),
    (
        {**HEAD, "zz": {}},
        [
            "zz: there is no such field; there are apiVersion, cronJobs, karpenter, kind, owners, platform, rules",
        ],
    ),
    ({**HEAD, "rules": []}, ["rules: a list is not allowed; write a map"]),
    (
        {**HEAD, "rules": {"grace-budgets": {}}},
        ["rules.grace-budgets: there is no such rule; did you mean grace-budget?"],
    ),
    (
        {**HEAD, "rules": {7: {}}},
        ["rules.7: there is no such rule; there are " + ", ".join(sorted(r.id for r in RULES))],
    ),
    ({**HEAD, "rules": {"grace-budget": True}}, ["rules.grace-budget: true is not allowed; write a map"]),
    (
        {**HEAD, "rules": {"grace-budget": {"level": "error"}}},
        ['rules.grace-budget.level: "error" is not allowed; write one of ignore, warn, deny'],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"level": False}}},
        ["rules.grace-budget.level: false is not allowed; write one of ignore, warn, deny"],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"fix": "yes"}}},
        ['rules.grace-budget.fix: "yes" is not allowed; write true or false'],
    ),
    (
        {**HEAD, "rules": {"exemption": {"fix": True}}},
        ["rules.exemption.fix: the rule has nothing to mend; take the line out"],
    ),
    ({**HEAD, "rules": {"exemption": {"strict": True}}}, ["rules.exemption.strict: it takes no option"]),
    (
        {**HEAD, "rules": {"grace-budget": {"margins": "5s"}}},
        ["rules.grace-budget.margins: there is no such option; did you mean margin?"],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"margin": "1d"}}},
        ['rules.grace-budget.margin: "1d" is not allowed; write a duration such as 90s, 10m or 24h'],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"margin": -1}}},
        ["rules.grace-budget.margin: -1 is not allowed; write a duration such as 90s, 10m or 24h"],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"margin": None}}},
        ["rules.grace-budget.margin: null is not allowed; write a duration such as 90s, 10m or 24h"],
    ),
    (
        {**HEAD, "rules": {"do-not-disrupt": {"default": "never"}}},
        ['rules.do-not-disrupt.default: "never" is not allowed; write a duration such as 90s, 10m or 24h, or none'],
    ),
    (
        {**HEAD, "rules": {"restart-policy": {"on-failure": "convert-always"}}},
        [
            'rules.restart-policy.on-failure: "convert-always" is not allowed; '
            "write one of convert-when-safe, convert, keep",
        ],
    ),
    (
        {**HEAD, "rules": {"restart-policy": {"on-failure": True}}},
        ["rules.restart-policy.on-failure: true is not allowed; write one of convert-when-safe, convert, keep"],
    ),
    ({**HEAD, "owners": "CronJob"}, ['owners: "CronJob" is not allowed; write a list of names']),
    ({**HEAD, "owners": [7]}, ["owners: a list is not allowed; write a list of names"]),
    ({**HEAD, "cronJobs": {"fix": "on"}}, ['cronJobs.fix: "on" is not allowed; write true or false']),
    ({**HEAD, "cronJobs": {"mend": True}}, ["cronJobs.mend: there is no such field; there are fix"]),
    (
        {**HEAD, "karpenter": {"version": 1.12}},
        ["karpenter.version: 1.12 is not allowed; write auto, none, or a version such as 1.12.0"],
    ),
    (
        {**HEAD, "karpenter": {"version": "latest"}},
        ['karpenter.version: "latest" is not allowed; write auto, none, or a version such as 1.12.0'],
    ),
    ({**HEAD, "karpenter": "1.12.0"}, ['karpenter: "1.12.0" is not allowed; write a map']),
    (
        {**HEAD, "platform": {"nodepools": {"batch": "ten"}}},
        ['platform.nodepools.batch: "ten" is not allowed; write a duration such as 90s, 10m or 24h'],
    ),
    ({**HEAD, "platform": {"nodepools": "all"}}, ['platform.nodepools: "all" is not allowed; write a map']),
    (
        {"kind": "Policy", "rules": {"grace-budget": {"level": "high", "margin": "x"}, "exit": {}}, "owners": 3},
        [
            "apiVersion: null is not known; write drainproof.dev/v1",
            "rules.exit: there is no such rule; there are " + ", ".join(sorted(r.id for r in RULES)),
            'rules.grace-budget.level: "high" is not allowed; write one of ignore, warn, deny',
            'rules.grace-budget.margin: "x" is not allowed; write a duration such as 90s, 10m or 24h',
            "owners: 3 is not allowed; write a list of names",
        ],
    ),
]


@pytest.mark.parametrize(("document", "problems"), WRONG, ids=[problems[0] for _, problems in WRONG])
def test_a_wrong_document_is_refused_with_every_problem(document: Any, problems: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        load(document, RULES)
    assert [str(problem) for problem in caught.value.problems] == problems
    assert str(caught.value) == "\n".join(problems)


def test_what_nobody_writes_is_the_default() -> None:
    shipped = policy.default(RULES)
    assert {rule.id: (shipped.settings[rule.id].level, shipped.settings[rule.id].fix) for rule in RULES} == {
        "exemption": (Level.WARN, False),
        "restart-policy": (Level.WARN, True),
        "pod-failure-policy": (Level.WARN, True),
        "pod-replacement-policy": (Level.WARN, True),
        "grace-budget": (Level.DENY, False),
        "do-not-disrupt": (Level.WARN, True),
    }
    assert shipped.owners == {"CronJob", "ScaledJob"}
    assert not shipped.context.rewrites_cron_jobs


def test_everything_that_can_be_set_is_read() -> None:
    read = policy_of(
        {
            "grace-budget": {"level": "warn", "fix": True, "margin": 5, "max": "20m"},
            "do-not-disrupt": {"default": "none", "services": "warn"},
        },
        owners=["CronJob", "Workflow"],
        cronJobs={"fix": True},
        karpenter={"version": "v1.11.2"},
        platform={"nodepools": {"batch": "10m"}},
    )
    grace = read.settings["grace-budget"]
    assert (grace.level, grace.fix, grace.options.margin, grace.options.max) == (
        Level.WARN,
        True,
        5 * SECOND,
        1200 * SECOND,
    )
    assert read.settings["do-not-disrupt"].options.default is None
    assert read.owners == {"CronJob", "Workflow"}
    assert read.context.rewrites_cron_jobs
    assert read.context.karpenter == (1, 11, 2)
    assert read.context.node_pools == (("batch", 600),)


@pytest.mark.parametrize("version", ["auto", "none"])
def test_a_version_of_karpenter_may_be_unknown(version: str) -> None:
    read = policy_of(karpenter={"version": version}, platform={"nodepools": "auto"})
    assert read.context.karpenter is None
    assert read.context.without_karpenter == (version == "none")


def test_a_whole_number_and_a_list_are_options_too() -> None:
    assert option.value_of(int, 3) == 3
    assert option.value_of(tuple[str, ...], ["a", "b"]) == ("a", "b")
    with pytest.raises(option.OptionError, match="a whole number, 0 or more"):
        option.value_of(int, True)

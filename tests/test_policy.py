"""A policy document is read whole, or refused with everything that is wrong with it."""

from typing import Any

import pytest

from tests.tables import policy_of
from webhook.core import option, policy
from webhook.core.duration import SECOND
from webhook.core.policy import PolicyError, load
from webhook.core.rule import Level
from webhook.core.ruleset import Facts, Mode, node_pool
from webhook.rules import RULES

HEAD = {"apiVersion": "drainproof.dev/v1", "kind": "Policy"}

MISSING = "overrides[0].namespaces: it is missing; write a list of globs such as [team-*]"

# A document, and every problem in it as it is reported.
WRONG: list[tuple[Any, list[str]]] = [
    (None, ["the document: it must be a map that starts with apiVersion: drainproof.dev/v1 and kind: Policy"]),
    ([], ["the document: it must be a map that starts with apiVersion: drainproof.dev/v1 and kind: Policy"]),
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
            "zz: there is no such field; there are apiVersion, cronJobs, exempt, karpenter, kind, mode, overrides, "
            "owners, platform, rules",
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
    ({**HEAD, "mode": "dry-run"}, ['mode: "dry-run" is not allowed; write one of enforce, monitor']),
    ({**HEAD, "mode": True}, ["mode: true is not allowed; write one of enforce, monitor"]),
    ({**HEAD, "mode": None}, ["mode: null is not allowed; write one of enforce, monitor"]),
    ({**HEAD, "owners": [""]}, ["owners: a list is not allowed; write a list of names"]),
    ({**HEAD, "owners": {}}, ["owners: a map is not allowed; write a list of names"]),
    ({**HEAD, "cronJobs": True}, ["cronJobs: true is not allowed; write a map"]),
    (
        {**HEAD, "karpenter": {"versions": "auto"}},
        ["karpenter.versions: there is no such field; did you mean version?"],
    ),
    (
        {**HEAD, "karpenter": {"version": "1.12"}},
        ['karpenter.version: "1.12" is not allowed; write auto, none, or a version such as 1.12.0'],
    ),
    (
        {**HEAD, "karpenter": {"version": None}},
        ["karpenter.version: null is not allowed; write auto, none, or a version such as 1.12.0"],
    ),
    (
        {**HEAD, "platform": {"spot": "two minutes"}},
        ['platform.spot: "two minutes" is not allowed; write a duration such as 90s, 10m or 24h'],
    ),
    ({**HEAD, "platform": {"spots": "120s"}}, ["platform.spots: there is no such field; did you mean spot?"]),
    ({**HEAD, "platform": ["spot"]}, ["platform: a list is not allowed; write a map"]),
    (
        {**HEAD, "platform": {"node-shutdown": 1.5}},
        ["platform.node-shutdown: 1.5 is not allowed; write a duration such as 90s, 10m or 24h"],
    ),
    (
        {**HEAD, "rules": {"active-deadline": {"disruptions": -1}}},
        ["rules.active-deadline.disruptions: -1 is not allowed; write a whole number from 0 to 1000"],
    ),
    (
        {**HEAD, "rules": {"active-deadline": {"disruptions": "3"}}},
        ['rules.active-deadline.disruptions: "3" is not allowed; write a whole number from 0 to 1000'],
    ),
    (
        {**HEAD, "rules": {"active-deadline": {"disruptions": 1001}}},
        ["rules.active-deadline.disruptions: 1001 is not allowed; write a whole number from 0 to 1000"],
    ),
    (
        {**HEAD, "rules": {"exit-code": {"inject": "declared"}}},
        ['rules.exit-code.inject: "declared" is not allowed; write one of always, when-declared'],
    ),
    (
        {**HEAD, "rules": {"exit-code": {"fix": True}}},
        ["rules.exit-code.fix: the rule has nothing to mend; take the line out"],
    ),
    (
        {**HEAD, "rules": {"do-not-disrupt": {"services": "deny"}}},
        ['rules.do-not-disrupt.services: "deny" is not allowed; write one of ignore, warn'],
    ),
    (
        {**HEAD, "rules": {"do-not-disrupt": {"max": "none"}}},
        ['rules.do-not-disrupt.max: "none" is not allowed; write a duration such as 90s, 10m or 24h'],
    ),
    (
        {**HEAD, "rules": {"pod-failure-policy": {"backoff-limit-zero": False}}},
        ["rules.pod-failure-policy.backoff-limit-zero: false is not allowed; write one of skip, inject"],
    ),
    (
        {**HEAD, "rules": {"pod-failure-policy": {"backoff_limit_zero": "skip"}}},
        ["rules.pod-failure-policy.backoff_limit_zero: there is no such option; did you mean backoff-limit-zero?"],
    ),
    ({**HEAD, "rules": {"backoff-limit": {"levels": "deny"}}}, ["rules.backoff-limit.levels: it takes no option"]),
    ({**HEAD, "overrides": {}}, ["overrides: a map is not allowed; write a list"]),
    ({**HEAD, "overrides": ["dev"]}, ['overrides[0]: "dev" is not allowed; write a map', MISSING]),
    ({**HEAD, "overrides": [{"rules": {}}]}, [MISSING]),
    (
        {**HEAD, "overrides": [{"namespaces": "dev"}]},
        ['overrides[0].namespaces: "dev" is not allowed; write a list of names'],
    ),
    (
        {**HEAD, "overrides": [{"namespaces": []}]},
        ["overrides[0].namespaces: an empty list matches nothing; write a list of globs, or take it out"],
    ),
    (
        {**HEAD, "overrides": [{"namespaces": ["dev"], "level": "warn"}]},
        ["overrides[0].level: there is no such field; there are namespaces, rules"],
    ),
    (
        {
            **HEAD,
            "overrides": [{"namespaces": ["a"]}, {"namespaces": ["b"], "rules": {"grace-budget": {"level": "no"}}}],
        },
        ['overrides[1].rules.grace-budget.level: "no" is not allowed; write one of ignore, warn, deny'],
    ),
    (
        {**HEAD, "rules": {"grace-budget": {"level": "no"}}, "overrides": [{"namespaces": ["a"], "rules": {}}]},
        ['rules.grace-budget.level: "no" is not allowed; write one of ignore, warn, deny'],
    ),
    (
        {**HEAD, "overrides": [{"namespaces": ["a"], "rules": {"grace": {}}}]},
        ["overrides[0].rules.grace: there is no such rule; did you mean grace-budget?"],
    ),
    ({**HEAD, "exempt": "kube-system"}, ['exempt: "kube-system" is not allowed; write a list']),
    (
        {**HEAD, "exempt": [{}]},
        ["exempt[0]: it exempts everything; write namespaces, kinds, names or owners"],
    ),
    (
        {**HEAD, "exempt": [{"reason": "all of it"}]},
        ["exempt[0]: it exempts everything; write namespaces, kinds, names or owners"],
    ),
    (
        {**HEAD, "exempt": [{"kinds": ["Jobs"]}]},
        ['exempt[0].kinds: "Jobs": there is no such kind; did you mean Job?'],
    ),
    (
        {**HEAD, "exempt": [{"namespace": ["a"]}]},
        ["exempt[0].namespace: there is no such field; did you mean namespaces?"],
    ),
    (
        {**HEAD, "exempt": [{"names": [7], "reason": ""}]},
        [
            "exempt[0].names: a list is not allowed; write a list of names",
            'exempt[0].reason: "" is not allowed; write a text',
        ],
    ),
    (
        {"kind": "Policy", "rules": {"grace-budget": {"level": "high", "margin": "x"}, "exit": {}}, "owners": 3},
        [
            "apiVersion: null is not known; write drainproof.dev/v1",
            "rules.exit: there is no such rule; did you mean exit-code?",
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


def test_the_table_of_wrong_documents_is_long_and_has_no_document_twice() -> None:
    assert len({str(document) for document, _ in WRONG}) == len(WRONG) >= 60


def test_what_nobody_writes_is_the_default() -> None:
    shipped = policy.default(RULES)
    settings = shipped.ruleset.settings
    assert {name: setting.level for name, setting in settings.items() if setting.level is not Level.WARN} == {
        "grace-budget": Level.DENY,
        "disruption-stamp": Level.IGNORE,
    }
    assert {name for name, setting in settings.items() if setting.fix} == {
        *("restart-policy", "pod-failure-policy", "pod-replacement-policy", "completion-guard", "do-not-disrupt")
    }
    assert shipped.mode is Mode.ENFORCE
    assert shipped.owners == {"CronJob", "ScaledJob"}
    assert not shipped.ruleset.context.rewrites_cron_jobs
    assert shipped.ruleset.context.places == ()


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
    grace = read.ruleset.settings["grace-budget"]
    assert (grace.level, grace.fix, grace.options.margin, grace.options.max) == (
        Level.WARN,
        True,
        5 * SECOND,
        1200 * SECOND,
    )
    assert read.ruleset.settings["do-not-disrupt"].options.default is None
    assert read.owners == {"CronJob", "Workflow"}
    assert read.ruleset.context.rewrites_cron_jobs
    assert read.ruleset.context.karpenter == (1, 11, 2)
    assert read.ruleset.context.places == (node_pool("batch", 600),)


@pytest.mark.parametrize("version", ["auto", "none"])
def test_a_version_of_karpenter_may_be_unknown(version: str) -> None:
    read = policy_of(karpenter={"version": version}, platform={"nodepools": "auto"})
    assert read.ruleset.context.karpenter is None
    assert read.ruleset.context.without_karpenter == (version == "none")


def test_a_whole_number_and_a_list_are_options_too() -> None:
    assert option.value_of(int, 3) == 3
    assert option.value_of(tuple[str, ...], ["a", "b"]) == ("a", "b")
    with pytest.raises(option.OptionError, match="a whole number from 0 to 1000"):
        option.value_of(int, True)


def test_an_empty_section_is_as_good_as_none() -> None:
    sections: dict[str, Any] = {"rules": None, "karpenter": None, "platform": {"nodepools": None}, "overrides": None}
    empty = {**HEAD, **sections, "exempt": []}
    assert load(empty, RULES).ruleset.settings == policy.default(RULES).ruleset.settings


def test_an_override_takes_what_it_does_not_say_from_the_policy() -> None:
    read = policy_of(
        {"grace-budget": {"level": "warn", "margin": "5s"}},
        overrides=[
            {"namespaces": ["team-a", "dev-*"], "rules": {"grace-budget": {"level": "ignore"}}},
            {"namespaces": ["dev-*"], "rules": {"grace-budget": {"level": "deny"}}},
        ],
    )
    for namespace, level in {
        "team-a": "ignore",
        "dev-7": "ignore",
        "Dev-7": "warn",
        "prod": "warn",
        "": "warn",
    }.items():
        setting = read.ruleset_for(namespace).settings["grace-budget"]
        assert (setting.level, setting.options.margin) == (level, 5 * SECOND), namespace


def test_facts_count_where_the_policy_says_auto() -> None:
    known = policy.facts(
        {
            "apiVersion": "drainproof.dev/v1",
            "kind": "Facts",
            "karpenter": {"version": "v1.11.2"},
            "nodepools": {"a": "10m"},
        }
    )
    read = policy_of(platform={"nodepools": "auto", "spot": "2m"}, overrides=[{"namespaces": ["x"]}]).with_facts(known)
    for namespace in ("x", "y"):
        context = read.ruleset_for(namespace).context
        assert context.karpenter == (1, 11, 2)
        assert [(place.name, place.grants) for place in context.places] == [("spot", 120), ("NodePool a", 600)]


def test_facts_do_not_count_where_the_policy_states_its_own() -> None:
    known = Facts((1, 11, 2), (("a", 600),))
    read = policy_of(karpenter={"version": "1.15.0"}, platform={"nodepools": {"b": 60}})
    assert read.with_facts(known) is read
    assert policy_of(karpenter={"version": "none"}).with_facts(known).ruleset.context.karpenter is None


def test_facts_that_nobody_found_change_nothing() -> None:
    read = policy_of(platform={"nodepools": "auto"})
    assert read.with_facts(Facts()).ruleset == read.ruleset


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ([], ["the document: it must be a map that starts with apiVersion: drainproof.dev/v1 and kind: Facts"]),
        ({"apiVersion": "drainproof.dev/v1"}, ["kind: null is not known; write Facts"]),
        (
            {
                "apiVersion": "drainproof.dev/v1",
                "kind": "Facts",
                "karpenter": {"version": "new"},
                "nodepools": {"a": "x"},
            },
            [
                'karpenter.version: "new" is not allowed; write a version such as 1.12.0',
                'nodepools.a: "x" is not allowed; write a duration such as 90s, 10m or 24h',
            ],
        ),
    ],
)
def test_wrong_facts_are_refused_with_every_problem(document: Any, problems: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        policy.facts(document)
    assert [str(problem) for problem in caught.value.problems] == problems

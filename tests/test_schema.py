"""The JSON Schema of a policy accepts what the loader accepts, and refuses what it refuses."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.test_policy import HEAD, WRONG
from webhook.core import page, policy
from webhook.core.duration import SECOND
from webhook.core.option import Duration
from webhook.core.policy import FIELDS, PolicyError
from webhook.core.rule import Level, Rule
from webhook.core.schema import facts_schema, schema
from webhook.rules import RULES

COMMITTED = Path(__file__).parents[1] / "docs" / "policy.schema.json"
SCHEMA = Draft202012Validator(schema(RULES))
FACTS = Draft202012Validator(facts_schema())
FACTS_HEAD = {"apiVersion": "drainproof.dev/v1", "kind": "Facts"}


def grace(**options: Any) -> dict[str, Any]:
    return {**HEAD, "rules": {"grace-budget": options}}


def protection(**options: Any) -> dict[str, Any]:
    return {**HEAD, "rules": {"do-not-disrupt": options}}


RIGHT: list[dict[str, Any]] = [
    HEAD,
    {**HEAD, "mode": "monitor", "owners": [], "cronJobs": None, "karpenter": {}, "platform": None, "rules": None},
    grace(level="warn", fix=True, margin=5, max="20m"),
    *(
        grace(margin=length)
        for length in ("0", "+0", "90", "5s", ".5s", "5.s", "1h30m", "1.5h", "+1h", "300ms", "7us", "7µs", "7μs", 0)
    ),
    *(protection(default=length) for length in ("none", "24h", 86400)),
    {**HEAD, "rules": {"active-deadline": {"disruptions": 0, "startup": "1m"}, "exit-code": None}},
    *({**HEAD, "karpenter": {"version": version}} for version in ("auto", "none", "1.12.0", "v1.11.2")),
    {**HEAD, "platform": {"spot": "120s", "cluster-autoscaler": 600, "node-shutdown": "1m", "nodepools": "auto"}},
    {**HEAD, "platform": {"nodepools": {"batch": "10m", "slow": 60}}},
    {**HEAD, "platform": {"nodepools": None}},
    {**HEAD, "overrides": [{"namespaces": ["team-*"], "rules": {"grace-budget": {"level": "warn"}}}], "exempt": []},
    {**HEAD, "overrides": [{"namespaces": ["kube-system"]}], "exempt": None},
    {**HEAD, "exempt": [{"kinds": ["Job", "*Set"], "names": ["x-?"], "owners": ["Workflow"], "reason": "theirs"}]},
]

# Documents that the two do not agree about, and whether the loader accepts them.
EXCEPTIONS: list[tuple[dict[str, Any], bool, str]] = [
    (grace(margin=5.0), False, "JSON Schema takes 5.0 for a whole number; a YAML file that says 5.0 arrives as 5"),
    (grace(margin="5s\n"), False, "Python's $ matches before a line's end; the expressions of editors do not"),
    (grace(margin="2000000h"), False, "a pattern does not compute how long a text is"),
    (grace(margin="99999999999"), False, "a pattern does not compute how long a text is"),
    (grace(margin="-0s"), True, "nobody writes less than no time, and the pattern knows no minus"),
]


def loads(document: Any, rules: Iterable[Rule] = RULES) -> bool:
    try:
        policy.load(document, rules)
    except PolicyError:
        return False
    return True


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema(RULES))
    Draft202012Validator.check_schema(facts_schema())


@pytest.mark.parametrize("document", [document for document, _ in WRONG])
def test_what_the_loader_refuses_the_schema_refuses(document: Any) -> None:
    assert not SCHEMA.is_valid(document)


@pytest.mark.parametrize("document", RIGHT)
def test_what_the_loader_accepts_the_schema_accepts(document: Any) -> None:
    assert loads(document)
    assert list(SCHEMA.iter_errors(document)) == []


@pytest.mark.parametrize(("document", "accepted", "reason"), EXCEPTIONS)
def test_an_exception_is_still_one(document: Any, accepted: bool, reason: str) -> None:
    assert (loads(document), SCHEMA.is_valid(document)) == (accepted, not accepted), reason


# What may stand where something is asked for, right or wrong; EXCEPTIONS are left out.
WORDS = "warn deny on none auto enforce monitor 5s 1d 10m 1h30m 1.12.0 v1.12 12 keep inject when-declared Job job *"
scalars = st.sampled_from([None, True, False, -1, 0, 7, 1001, 1.5, "", " ", *WORDS.split()])
lengths = st.text(alphabet="0123456789.+hmsnuµd ", max_size=6)
names = st.lists(st.sampled_from(["Job", "CronJob", "jobs", "*Set", "team-*", "", 7]), max_size=2)
values: st.SearchStrategy[Any] = scalars | lengths | names | st.just({})
options = sorted({"level", "fix", "unknown", *(entry.name for rule in RULES for entry in page.entries(rule))})
setting = st.dictionaries(st.sampled_from(options), values, max_size=3) | scalars
ruleset = st.dictionaries(st.sampled_from([*(rule.id for rule in RULES), "unknown"]), setting, max_size=3) | scalars
platform = st.dictionaries(
    st.sampled_from(["spot", "cluster-autoscaler", "node-shutdown", "nodepools", "unknown"]),
    values | st.dictionaries(st.just("batch"), values),
    max_size=2,
)
which = st.dictionaries(st.sampled_from(["namespaces", "kinds", "names", "owners", "reason", "rules"]), values)
override = st.fixed_dictionaries({"namespaces": names}, optional={"rules": ruleset, "unknown": values})
sections = {
    "mode": values,
    "owners": values,
    "cronJobs": st.dictionaries(st.sampled_from(["fix", "unknown"]), values, max_size=1) | values,
    "karpenter": st.dictionaries(st.sampled_from(["version", "unknown"]), values, max_size=1) | values,
    "platform": platform | values,
    "rules": ruleset,
    "overrides": st.lists(override | which | scalars, max_size=2) | values,
    "exempt": st.lists(which | scalars, max_size=2) | values,
}
one_section = st.one_of([st.fixed_dictionaries({name: section}) for name, section in sections.items()])
some_sections = st.fixed_dictionaries({}, optional={**sections, "unknown": values, "kind": values})


@given(one_section | some_sections)
def test_the_schema_and_the_loader_agree_about_any_document(document: dict[str, Any]) -> None:
    document = {**HEAD, **document}
    assert SCHEMA.is_valid(document) == loads(document), list(SCHEMA.iter_errors(document))


@given(lengths)
def test_the_schema_and_the_loader_agree_about_any_duration(length: str) -> None:
    assert SCHEMA.is_valid(grace(margin=length)) == loads(grace(margin=length))


@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        (FACTS_HEAD, True),
        ({**FACTS_HEAD, "karpenter": {"version": "1.12.0"}, "nodepools": {"batch": "10m"}}, True),
        ({**FACTS_HEAD, "karpenter": {"version": None}, "nodepools": None}, True),
        ({**FACTS_HEAD, "karpenter": {"version": "auto"}}, False),
        ({**FACTS_HEAD, "nodepools": {"batch": "ten"}}, False),
        ({**FACTS_HEAD, "rules": {}}, False),
        (HEAD, False),
    ],
)
def test_the_schema_and_the_loader_agree_about_facts(document: dict[str, Any], accepted: bool) -> None:
    try:
        policy.facts(document)
        is_read = True
    except PolicyError:
        is_read = False
    assert (is_read, FACTS.is_valid(document)) == (accepted, accepted)


@dataclass(frozen=True)
class EveryType:
    """Options of all the types that there are, those that no rule has among them."""

    flag: bool = field(default=True, metadata={"says": "a flag"})
    text: str = field(default="x", metadata={"says": "a text"})
    names: tuple[str, ...] = field(default=("a", "b"), metadata={"says": "names"})
    count: int = field(default=3, metadata={"says": "a count"})
    only: Literal["this"] = field(default="this", metadata={"says": "a word"})
    length: Duration = field(default=Duration(90 * SECOND), metadata={"says": "a length"})
    no_length: Duration | None = field(default=None, metadata={"says": "a length, or none"})


MADE_UP = Rule("made-up", lambda *_: (), EveryType, Level.WARN, fix=False, kinds=frozenset({"Job"}))
OF_EVERY_TYPE = Draft202012Validator(schema([MADE_UP]))


@given(st.sampled_from([entry.name for entry in page.entries(MADE_UP)]), values)
def test_the_schema_and_the_loader_agree_about_an_option_of_any_type(name: str, value: Any) -> None:
    document = {**HEAD, "rules": {"made-up": {name: value}}}
    assert OF_EVERY_TYPE.is_valid(document) == loads(document, [MADE_UP])


def test_an_option_of_any_type_is_described() -> None:
    assert [(entry.name, page.takes(entry.kind), entry.default) for entry in page.entries(MADE_UP)] == [
        ("flag", "true or false", True),
        ("text", "a text", "x"),
        ("names", "a list of names", ["a", "b"]),
        ("count", "a whole number", 3),
        ("only", "this", "this"),
        ("length", "a duration", "1m30s"),
        ("no-length", "a duration, or none", "none"),
    ]


def test_the_schema_knows_every_field_and_describes_what_can_be_set() -> None:
    made = schema(RULES)
    assert set(made["properties"]) == set(FIELDS)
    for rule in RULES:
        described = made["$defs"]["rules"]["properties"][rule.id]
        assert described["description"] == page.summary(rule)
        assert all(one["description"] and "default" in one for one in described["properties"].values())


def test_a_default_of_the_schema_is_a_value_that_it_takes() -> None:
    for rule, described in schema(RULES)["$defs"]["rules"]["properties"].items():
        defaults = {name: one["default"] for name, one in described["properties"].items()}
        document = {**HEAD, "rules": {rule: defaults}}
        assert SCHEMA.is_valid(document)
        assert policy.load(document, RULES).ruleset == policy.default(RULES).ruleset


def test_the_committed_schema_is_up_to_date() -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == schema(RULES), "run make docs"

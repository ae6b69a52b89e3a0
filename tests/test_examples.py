"""The manifests of examples/ are right, and come out as their own comments claim."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cluster.demo import example
from tests.cluster.demo.difference import difference
from tests.cluster.demo.example import FOLDER, POLICY, STORY, Example
from webhook import policyfile
from webhook.cli import main
from webhook.core import policy
from webhook.core.option import spelled
from webhook.rules import RULES
from webhook.source import yamltext
from webhook.source.node import data

EXAMPLES = [pytest.param(one, id=one.path.stem) for one in example.story()]

# The line of each finding, and the rule that has it; what comes of the whole stands in the manifest.
FOUND = {
    "on-failure-job": [(13, "warn", "restart-policy")],
    "grace-too-short": [(14, "deny", "grace-budget")],
    "protected-without-end": [(13, "warn", "do-not-disrupt")],
    "protected-not-at-all": [(13, "warn", "do-not-disrupt")],
    "never-run-twice": [(8, "warn", "pod-failure-policy")],
    "on-failure-cronjob": [(16, "warn", "restart-policy")],
    "deployment-grace-too-short": [(18, "deny", "grace-budget")],
}


def run(command: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [command, *options, str(path)])


def test_every_manifest_is_in_the_story_and_nothing_else_is() -> None:
    assert sorted([*STORY, POLICY.stem]) == sorted(path.stem for path in FOLDER.iterdir())
    assert set(FOUND) <= set(STORY)


@pytest.mark.parametrize("one", EXAMPLES)
def test_a_manifest_says_in_three_lines_what_it_shows(one: Example) -> None:
    lines = one.path.read_text(encoding="utf-8").splitlines()
    comment = [line for line in lines if line.startswith("#")]
    assert lines[: len(comment)] == comment
    assert 2 <= len(comment) <= 3
    assert comment[-1].startswith("# Outcome: ")
    assert all(len(line) <= 120 and line.isascii() for line in lines)
    assert one.purpose.endswith(".")
    assert len(one.purpose) <= 80


@pytest.mark.parametrize("one", EXAMPLES)
def test_check_finds_what_the_comment_claims(one: Example) -> None:
    result = run("check", one.path, "-o", "json")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert [(each["line"], each["level"], each["rule"]) for each in found] == FOUND.get(one.path.stem, [])
    assert result.exit_code == ("refused" in one.claim)


@pytest.mark.parametrize("one", EXAMPLES)
def test_what_is_mended_and_found_is_the_claimed_outcome(one: Example) -> None:
    found = json.loads(run("check", one.path, "-o", "json").stdout)
    by_level = {level: [each["rule"] for each in found if each["level"] == level] for level in ("warn", "deny")}
    is_mended = run("mend", one.path, "--patch").stdout != ""
    assert example.outcome(is_mended, by_level["warn"], by_level["deny"]) == one.claim


@pytest.mark.parametrize("one", EXAMPLES)
def test_a_mended_manifest_has_nothing_left_to_mend(one: Example, tmp_path: Path) -> None:
    mended = tmp_path / "mended.yaml"
    mended.write_text(run("mend", one.path).stdout)
    assert run("mend", mended, "--diff").stdout == ""


def test_the_policy_states_what_is_in_force_without_one() -> None:
    assert replace(policyfile.load(POLICY, RULES), document={}) == replace(policy.default(RULES), document={})


def test_what_the_policy_leaves_commented_out_is_right(tmp_path: Path) -> None:
    text = re.sub(r"^( *)#(?! )", r"\1", POLICY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    uncommented = tmp_path / "policy.yaml"
    uncommented.write_text(text)
    loaded = policyfile.load(uncommented, RULES)
    assert (len(loaded.overrides), len(loaded.exempt)) == (1, 1)
    assert {place.name for place in loaded.ruleset.context.places} == {"spot", "cluster-autoscaler", "node-shutdown"}


def test_the_policy_names_every_rule_and_every_option() -> None:
    node = yamltext.parse(POLICY.read_text(encoding="utf-8"))
    assert node is not None
    stated = data(node)["rules"]
    for rule in RULES:
        settings = ["level", *(["fix"] if rule.fix is not None else [])]
        assert list(stated.get(rule.id, {})) == settings + [spelled(option) for option in fields(rule.options)], rule.id


@pytest.mark.parametrize(
    ("mended", "warned", "refused", "said"),
    [
        (False, [], [], "accepted as written"),
        (True, [], [], "mended"),
        (False, ["exemption"], [], "warned (exemption)"),
        (True, ["exemption", "grace-budget"], [], "mended, warned (exemption, grace-budget)"),
        (True, ["exemption"], ["grace-budget"], "refused (grace-budget)"),
    ],
)
def test_an_outcome_is_said_in_the_words_of_a_claim(
    mended: bool, warned: list[str], refused: list[str], said: str
) -> None:
    assert example.outcome(mended, warned, refused) == said


def stored(uid: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    metadata = {"name": "x", "uid": uid, "creationTimestamp": f"at {uid}", "labels": {"uid": uid}}
    return {"metadata": {**metadata, **({"annotations": annotations} if annotations else {})}, "spec": spec}


def test_a_difference_shows_what_changed_and_what_leads_to_it() -> None:
    written = {"metadata": {"name": "x"}, "spec": {"policy": "old", "rules": [1]}}
    before = stored("a", {"policy": "old", "rules": [1], "limit": 6, "mode": "default"})
    after = stored("b", {"policy": "new", "rules": [0, 1], "limit": 6, "mode": "ours"}, guard="on")
    assert difference(written, before, after) == [
        " metadata:",
        "+  annotations:",
        '+    guard: "on"',
        " spec:",
        "+  mode: ours",
        "-  policy: old",
        "+  policy: new",
        "   rules:",
        "+  - 0",
        "   - 1",
    ]


def test_two_answers_that_differ_only_by_the_object_number_show_no_difference() -> None:
    assert difference({}, stored("a", {"limit": 6}), stored("b", {"limit": 6})) == []

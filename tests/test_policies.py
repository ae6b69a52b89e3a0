"""The commands around policy documents: show, validate, schema."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.test_schema import RIGHT
from webhook.cli import main
from webhook.core import page, policy
from webhook.core.policy import Policy
from webhook.core.schema import schema
from webhook.policytext import written
from webhook.rules import RULES
from webhook.source import yamltext
from webhook.source.node import data

FULL = """\
apiVersion: drainproof.dev/v1
kind: Policy
owners: ["Work*flow", "yes"]
platform: {spot: 120s, nodepools: {"1e3": 90, batch: 10m}}
rules:
  grace-budget: {level: warn, margin: "300ms"}
  do-not-disrupt: {default: none}
overrides:
- namespaces: ["team-*", "on"]
  rules: {grace-budget: {level: deny}}
exempt:
- {kinds: [Job], names: ["*"], reason: "theirs: not ours"}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["policy", *map(str, arguments)])


def without_document(one: Policy) -> Policy:
    return replace(one, document={})


def read(text: str) -> Any:
    node = yamltext.parse(text)
    return None if node is None else data(node)


@pytest.mark.parametrize("document", [*RIGHT, read(FULL)])
def test_a_policy_that_is_written_out_is_the_same_policy(document: dict[str, Any]) -> None:
    loaded = policy.load(document, RULES)
    again = policy.load(read(written(loaded, RULES, "policy.yaml")), RULES)
    assert without_document(again) == without_document(loaded)


def test_without_a_file_every_line_is_a_default() -> None:
    result = run("show")
    assert result.exit_code == 0
    assert "# set" not in result.stdout
    assert without_document(policy.load(read(result.stdout), RULES)) == without_document(policy.default(RULES))


def test_every_setting_of_every_rule_is_shown() -> None:
    shown = read(run("show").stdout)["rules"]
    assert list(shown) == [rule.id for rule in RULES]
    for rule in RULES:
        fix = [] if rule.fix is None else ["fix"]
        assert list(shown[rule.id]) == ["level", *fix, *(entry.name for entry in page.entries(rule))]


def test_what_a_file_sets_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FULL)
    lines = run("show", file).stdout.splitlines()
    assert lines[0] == f"# The policy in force: {file} on top of the defaults."
    for line in (
        'owners: ["Work*flow", "yes"] # set; the default is [CronJob, ScaledJob]',
        "    level: warn # set; the default is deny",
        "    margin: 300ms # set; the default is 0s; time to be left between the end of the task and SIGKILL",
        "    fix: false # default",
        "overrides: # set",
    ):
        assert line in lines


def test_a_file_that_cannot_be_used_is_not_shown(tmp_path: Path) -> None:
    result = run("show", tmp_path / "none.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Error: {tmp_path}/none.yaml: it cannot be read: No such file or directory\n"


def test_valid_files_are_named_and_every_problem_has_its_line(tmp_path: Path) -> None:
    good, bad, empty = (tmp_path / name for name in ("good.yaml", "bad.json", "empty.yaml"))
    good.write_text(FULL)
    bad.write_text(
        '{"apiVersion": "drainproof.dev/v1",\n "kind": "Policy",\n "rules": {\n  "exit-code": {"inject": 1}},\n "x": 1}'
    )
    empty.write_text("")
    result = run("validate", good, bad, empty)
    assert result.exit_code == 2
    assert result.stdout == f"{good}: valid\n"
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"{bad}:5: x: there is no such field")
    assert lines[1] == f"{bad}:4: rules.exit-code.inject: 1 is not allowed; write one of always, when-declared"
    assert lines[2].startswith(f"{empty}: the document: it must be a map")
    assert run("validate", good).exit_code == 0


def test_a_missing_field_is_placed_at_what_it_is_missing_from(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("# ours\napiVersion: drainproof.dev/v1\nkind: Policy\noverrides:\n- namespaces: [a]\n- rules: {}\n")
    result = run("validate", file)
    assert (
        result.stderr == f"{file}:6: overrides[1].namespaces: it is missing; write a list of globs such as [team-*]\n"
    )


def test_the_schema_is_printed_and_its_use_explained() -> None:
    assert json.loads(run("schema").stdout) == schema(RULES)
    assert "# yaml-language-server: $schema=" in run("schema", "--help").stdout

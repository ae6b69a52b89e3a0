"""Tables, rules and modules belong together, and nothing is missing."""

from tests.tables import CASES, read
from webhook.rules import RULES


def test_each_rule_has_a_table_and_each_table_a_rule() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {rule.id for rule in RULES}


def test_the_names_of_a_tables_cases_differ() -> None:
    for path in CASES.glob("*.yaml"):
        names = [case["name"] for case in read(path)["cases"]]
        assert len(names) == len(set(names)), path.name


def test_a_rule_is_called_as_its_module_is() -> None:
    for rule in RULES:
        assert rule.check.__module__ == "webhook.rules." + rule.id.replace("-", "_")

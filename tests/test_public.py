"""Objects from public reports come out as they must."""

import json
from typing import Any

import pytest

from tests.tables import CASES, CORE, merged, policy_of, read, without_record
from webhook.core import engine

EXPECTED: dict[str, Any] = read(CASES.parent / "public.yaml")["cases"]
POLICY = policy_of()


def test_every_captured_review_has_its_right_outcome() -> None:
    reviews = {path.name.removesuffix(".mutate.json") for path in (CASES / "reviews").glob("*.json")}
    assert reviews == set(EXPECTED)


def test_every_input_has_a_review() -> None:
    assert {path.stem for path in (CASES / "inputs").glob("*.yaml")} == {name.rpartition(".")[0] for name in EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_captured_review_comes_out_as_it_must(name: str) -> None:
    expected = EXPECTED[name]
    given = json.loads((CASES / "reviews" / f"{name}.mutate.json").read_text())["request"]["object"]
    verdict = engine.foresee(given, POLICY)
    after, record = without_record(verdict.object if given["kind"] != "CronJob" else given)
    assert after == merged(given, expected.get("after", {}))
    assert record == expected.get("record")
    found = expected.get("found", [])
    core = [notice for notice in verdict.notices if notice.rule in CORE]
    assert [notice.rule for notice in core] == [notice["rule"] for notice in found]
    for notice, said in zip(core, found, strict=True):
        assert said["says"] in notice.message
    assert [notice.rule for notice in verdict.notices if notice.rule not in CORE] == expected.get("advice", [])
    assert verdict.denied == ()

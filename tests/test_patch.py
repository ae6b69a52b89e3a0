"""Wishes become steps that apply to the very document received."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.patch import MISSING, Drop, Put, at, dotted, entries, grant, mapping, pointer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c/~"]), inner, max_size=3),
    max_leaves=12,
)
PATHS = st.lists(st.sampled_from(["a", "b", "c/~"]), min_size=1, max_size=4).map(tuple)


def test_what_stands_at_a_path_is_found() -> None:
    document = {"a": [{"b": 1}, None]}
    assert at(document, ("a", 0, "b")) == 1
    assert at(document, ("a", -1)) is None
    assert at(document, ()) is document
    assert mapping(document, "a", 0) == {"b": 1}
    assert entries(document, "a") == [{"b": 1}, None]


@pytest.mark.parametrize("path", [("b",), ("a", 2), ("a", "b"), ("a", 0, "b", "c"), (0,), ("a", -3)])
def test_what_is_not_there_is_the_default(path: tuple[Any, ...]) -> None:
    document = {"a": [{"b": 1}, None]}
    assert at(document, path, "none") == "none"
    assert mapping(document, *path) == {}
    assert entries(document, *path) == []


def test_a_pointer_escapes_what_it_must() -> None:
    path = ("metadata", "annotations", "karpenter.sh/do-not-disrupt", "~")
    assert pointer(path) == "/metadata/annotations/karpenter.sh~1do-not-disrupt/~0"


def test_a_path_is_written_as_people_do() -> None:
    assert dotted(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert dotted(("metadata", "annotations", "a.b/c")) == "metadata.annotations[a.b/c]"
    assert dotted(("rules", "grace-budget", "margin")) == "rules.grace-budget.margin"


@pytest.mark.parametrize(
    ("document", "path", "steps"),
    [
        ({"a": 1}, ("a",), [{"op": "add", "path": "/a", "value": 7}]),
        ({}, ("a", "b", "c"), [{"op": "add", "path": "/a", "value": {"b": {"c": 7}}}]),
        ({"a": {}}, ("a", "b", "c"), [{"op": "add", "path": "/a/b", "value": {"c": 7}}]),
        ({"a": None}, ("a", "b"), [{"op": "add", "path": "/a", "value": {"b": 7}}]),
        ({"a": {"b": 7}}, ("a", "b"), []),
    ],
)
def test_a_value_is_put_with_the_maps_that_are_missing(document: Any, path: Any, steps: Any) -> None:
    granted = grant(document, Put(path, 7))
    assert granted is not None
    assert granted[1] == steps


@pytest.mark.parametrize("document", [{"a": [1]}, {"a": "text"}, {"a": 1}, [], None, "text", {"a": {"b": [1]}}])
def test_a_wish_below_something_that_is_no_map_is_not_granted(document: Any) -> None:
    assert grant(document, Put(("a", "b", "c"), 7)) is None


def test_the_whole_document_cannot_be_wished_for() -> None:
    assert grant({"a": 1}, Put((), {})) is None


def test_dropping_takes_out_what_is_there_and_nothing_else() -> None:
    assert grant({"a": {"b": 1}}, Drop(("a", "b"))) == ({"a": {}}, [{"op": "remove", "path": "/a/b"}])
    assert grant({"a": {"b": None}}, Drop(("a", "b"))) == ({"a": {}}, [{"op": "remove", "path": "/a/b"}])
    assert grant({"a": {}}, Drop(("a", "b"))) == ({"a": {}}, [])
    assert grant({}, Drop(("a", "b"))) == ({}, [])
    assert grant({"a": [1]}, Drop(("a", "b"))) is None


@given(document=JSON, path=PATHS, value=JSON, drop=st.booleans())
def test_steps_lead_from_the_document_to_the_one_granted(document: Any, path: Any, value: Any, drop: bool) -> None:
    before = repr(document)
    granted = grant(document, Drop(path) if drop else Put(path, value))
    assert repr(document) == before
    if granted is not None:
        after, steps = granted
        assert jsonpatch.apply_patch(document, steps) == after
        assert at(after, path, MISSING) == (MISSING if drop else value)

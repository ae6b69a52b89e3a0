"""Reading manifests: what kubectl accepts is read with its lines; what the API server could not decode is named."""

import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook import manifest
from webhook.manifest import read
from webhook.source import jsontext
from webhook.source.document import Source
from webhook.source.node import SourceError
from webhook.source.scalar import resolved, written

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n"


def of(text: str) -> Source:
    return read("f.yaml", text.encode())


def told(source: Source) -> list[str]:
    return [str(complaint) for complaint in source.complaints]


def places(source: Source) -> list[tuple[str, int]]:
    return [(item.data["kind"], item.line) for document in source.documents for item in document.items]


@pytest.mark.parametrize("text", ["", "\n\n", "---", "---\n---\n# nothing\n", "%YAML 1.1\n---\n", "# x\n...\n"])
def test_what_is_empty_is_no_error(text: str) -> None:
    assert of(text).documents == ()
    assert told(of(text)) == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings_and_line_ends_make_no_difference(encoding: str, newline: str) -> None:
    content = f"{JOB}---\n{JOB}".replace("\n", newline).encode(encoding)
    source = read("f", content)
    assert places(source) == [("Job", 1), ("Job", 5)]
    assert source.text.encode(source.encoding) == content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x00\x01\x02", "f: it is a binary file, not a manifest"),
        (b"a: b\nc: caf\xe9", "f:2: it is not UTF-8 text"),
        (b"\xff\xfe\x00", "f:1: it is not UTF-16 text"),
    ],
)
def test_what_is_no_text_is_said_to_be_none(content: bytes, text: str) -> None:
    assert told(read("f", content)) == [text]


def test_items_of_lists_are_objects_with_their_own_lines() -> None:
    source = of(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- {apiVersion: batch/v1, kind: Job}\n- 3\n"
    )
    assert places(source) == [("Pod", 4), ("Job", 6)]
    assert told(source) == ["f.yaml:7: it is no object; write a map with apiVersion, kind and metadata"]


def test_items_of_a_typed_list_need_no_kind() -> None:
    source = of(
        '{"apiVersion":"batch/v1","kind":"JobList","items":[{"metadata":{"name":"x"}},\n{"metadata":{"name":"y"}}]}'
    )
    assert [item.data["apiVersion"] for item in source.documents[0].items] == ["batch/v1"] * 2


def test_json_objects_may_follow_one_another() -> None:
    assert places(of('{"apiVersion":"v1","kind":"Pod"}\n{"apiVersion":"v1","kind":"Pod"}\n---\n' + JOB)) == [
        ("Pod", 1),
        ("Pod", 2),
        ("Job", 4),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "metadata: {annotations: {a: true}}",
            'metadata.annotations.a: true is a boolean and must be a text; quote it: "true"',
        ),
        (
            "metadata: {annotations: {a: yes}}",
            'metadata.annotations.a: yes is a boolean and must be a text; quote it: "yes"',
        ),
        ("metadata: {labels: {a: 1.20}}", 'metadata.labels.a: 1.20 is a number and must be a text; quote it: "1.20"'),
        (
            'spec: {backoffLimit: "3"}',
            'spec.backoffLimit: "3" is a text; write a whole number of at most 32 bits, without quotes',
        ),
        (
            "spec: {backoffLimit: 4294967296}",
            "spec.backoffLimit: 4294967296 is too large; write a whole number of at most 32 bits",
        ),
        (
            "spec: {activeDeadlineSeconds: 1.5}",
            "spec.activeDeadlineSeconds: 1.5 is not allowed; write a whole number of at most 64 bits",
        ),
        ("spec: {suspend: 'no'}", 'spec.suspend: "no" is a text; write true or false, without quotes'),
        ("spec: []", "spec: a list is not allowed; write a map"),
        (
            "spec: {template: {spec: {containers: {}}}}",
            "spec.template.spec.containers: a map is not allowed; write a list",
        ),
        (
            "spec: {template: {spec: {containers: [{args: [80]}]}}}",
            'spec.template.spec.containers[0].args[0]: 80 is a number and must be a text; quote it: "80"',
        ),
    ],
)
def test_what_the_api_server_could_not_decode_is_named(line: str, text: str) -> None:
    source = of(f"{JOB}---\napiVersion: batch/v1\nkind: Job\n{line}\n")
    assert told(source) == [f"f.yaml:7: {text}"]
    assert len(places(source)) == 1


@pytest.mark.parametrize(
    "line", ["spec:", "spec: {backoffLimit: 30.0}", "spec: {backoffLimit: 1e1, template: null}", "x: {y: 1}"]
)
def test_what_the_api_server_could_decode_is_not_complained_about(line: str) -> None:
    assert told(of(f"apiVersion: batch/v1\nkind: Job\n{line}\n")) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\n", "f.yaml:1: apiVersion is missing"),
        ("apiVersion: v1\nkind: 3\n", "f.yaml:1: kind must be a text"),
        ("hello", "f.yaml:1: it is no object; write a map with apiVersion, kind and metadata"),
        (f"{JOB}kind: x\n", "f.yaml:4: the key kind is there twice"),
        ('{"kind": "a", "kind": "b"}', "f.yaml:1: the key kind is there twice"),
        ("a: *b\n", "f.yaml:1: *b stands for nothing, or for something that it is a part of"),
        ("a: &a [*a]\n", "f.yaml:1: *a stands for nothing, or for something that it is a part of"),
        ("a: .nan\n", "f.yaml:1: .nan is no value that JSON knows"),
        ("<<: 3\n", "f.yaml:1: << takes a map, or a list of maps"),
        ("a: !!binary '%'\n", "f.yaml:1: !!binary needs a text in base64"),
        ("[" * 5000, "f.yaml:1: it is nested more than 200 levels deep"),
        ("a: b\n...\nc: d\n", "f.yaml:3: expected '<document start>', but found ('<block mapping start>',)"),
    ],
)
def test_a_document_that_cannot_be_read_does_not_keep_the_others_from_being_read(text: str, complaint: str) -> None:
    source = of(f"{text}\n---\n{JOB}")
    assert told(source) == [complaint]
    assert [kind for kind, _ in places(source)] == ["Job"]


@pytest.mark.parametrize(
    "text",
    [
        "{{- if .Values.x }}\na: b\n{{- end }}\n",
        "name: {{ .Release.Name }}\n",
        JOB + 'spec: {backoffLimit: "{{ .x }}"}',
    ],
)
def test_a_helm_template_is_recognized(text: str) -> None:
    assert len(told(of(text))) == 1
    assert "run `helm template` first" in told(of(text))[0]


def test_a_text_of_braces_in_quotes_is_no_complaint() -> None:
    assert told(of('apiVersion: v1\nkind: ConfigMap\ndata: {a: "{{ x }}"}\n')) == []


def test_other_kinds_are_objects_without_complaint() -> None:
    assert places(of("apiVersion: example.test/v1\nkind: Widget\nspec: [1, yes]\n")) == [("Widget", 1)]


def test_merge_keys_and_anchors_mean_what_they_mean_to_kubectl() -> None:
    source = of(f"{JOB}a: &a {{x: 1, v: 2}}\nb: {{<<: *a, v: 3}}\nc: {{<<: [*a, {{z: 4, x: 9}}]}}\nd: *a\n")
    found = source.documents[0].data
    assert (found["b"], found["c"], found["d"]) == ({"x": 1, "v": 3}, {"x": 1, "v": 2, "z": 4}, {"x": 1, "v": 2})


def test_aliases_that_stand_for_too_much_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    start = time.monotonic()
    assert "aliases stand for more than" in told(of("\n".join(lines)))[0]
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("size", [2_000_000])
def test_megabytes_of_json_are_read_in_seconds(size: int) -> None:
    one = '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{"backoffLimit":3}}'
    start = time.monotonic()
    assert (
        len(places(of('{"apiVersion":"v1","kind":"List","items":[' + ",".join([one] * (size // len(one))) + "]}")))
        > 20_000
    )
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("n", False),
        ("~", None),
        ("1_000", 1000),
        ("0755", 493),
        ("0x1F", 31),
        ("0b11", 3),
        ("0o17", 15),
        ("-7", -7),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("1e3", 1000),
        (".5", 0.5),
        ("30.0", 30),
        ("09", 9),
        ("-", "-"),
        ("4h", "4h"),
        ("18446744073709551615", 18446744073709551615),
        ("tRue", "tRue"),
        ("½", "½"),
        ("...", "..."),
    ],
)
def test_plain_scalars_are_read_as_by_kubectl(text: str, value: Any) -> None:
    assert resolved(text) == value
    assert type(resolved(text)) is type(value)


@settings(max_examples=300)
@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["yes", "1e3", "on", "a: b", "- x", "#", "'", '"', "0x1"])
)
def test_a_text_that_is_written_is_read_again_as_it_was(text: str) -> None:
    for quote in ("", "'", '"'):
        source = of(f"apiVersion: v1\nkind: A\nvalue: {written(text, quote)}\n")
        if source.documents:  # some characters no YAML may hold
            assert source.documents[0].data["value"] == text


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text("{}[]:-&*!|>'\"#%@`,? \n\tab0", max_size=60).map(str.encode))
def test_no_bytes_make_it_raise(content: bytes) -> None:
    read("f", content)


def test_folders_give_their_manifests_and_with_recursive_those_of_their_folders(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "d.txt", "in/e.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = [Path(name).name for name in manifest.found([str(tmp_path), "-", "x.txt", "-"])]
    assert names == ["a.yaml", "b.yml", "c.json", "-", "x.txt"]
    assert len(list(manifest.found([str(tmp_path)], recursive=True))) == 4


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    assert told(manifest.load(str(missing))) == [f"{missing}: it cannot be read: no such file or directory"]
    assert told(manifest.load("\0")) == ["?: it cannot be read: embedded null byte"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert manifest.load("-").name == "stdin"


def test_a_path_has_the_line_of_what_is_written_nearest() -> None:
    document = of(
        f"{JOB}---\n# x\napiVersion: v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n      - name: a\n"
    ).documents[1]
    assert document.line_of(()) == 6
    assert document.line_of(("spec", "template", "spec", "containers", 0, "name")) == 12
    assert document.line_of(("spec", "template", "spec", "containers", 7)) == 11
    assert document.line_of(("spec", "podFailurePolicy", "rules")) == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[",
        "[1",
        "[1 2]",
        '{"a"}',
        '{"a":1 "b":2}',
        "{a: 1}",
        "[NaN]",
        "[1e999]",
        "[tru]",
        '{"a":1,}',
        "[1,]",
        "[" * 300,
    ],
)
def test_what_is_no_json_is_refused_with_a_place(text: str) -> None:
    with pytest.raises(SourceError) as error:
        jsontext.parse(text)
    assert 0 <= error.value.offset <= len(text)


def test_json_is_read_as_json() -> None:
    assert read(
        "f", b'{"apiVersion": "v1", "kind": "A", "x": [1.5, -2, 3.0, true, null, "\\ud83d\\ude00", {}, []]}'
    ).documents[0].data["x"] == [1.5, -2, 3, True, None, "\U0001f600", {}, []]

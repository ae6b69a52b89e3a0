"""The commands, as people and pipelines run them."""

import codecs
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jsonpatch
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_defaults import CAPTURED, CASES, JOB_FIELDS, POLICY, pair
from webhook import mending
from webhook.cli import main
from webhook.core import engine
from webhook.core.defaults import defaulted
from webhook.core.patch import Drop, Put, at
from webhook.core.workload import KINDS
from webhook.judging import Judged, judged
from webhook.manifest import read
from webhook.rules import RULES
from webhook.source import jsontext, scalar, splice, yamltext
from webhook.source.node import data

JOB = """\
# the nightly run
apiVersion: batch/v1
kind: Job
metadata:
  name: 'nightly'   # quoted
spec:
  backoffLimit: 4  # four
  activeDeadlineSeconds: 3600
  template:
    # about the Pod
    spec:
      restartPolicy: Never
      containers:
      - name: run
        image: "example.test/run:1"
"""
DENIED = JOB.replace("      restartPolicy", "      terminationGracePeriodSeconds: 10\n      restartPolicy").replace(
    "    # about the Pod\n", '    metadata: {annotations: {drainproof.dev/max-task-duration: "20s"}}\n'
)
WARNED = JOB.replace("backoffLimit: 4", "backoffLimit: 0")
RULES_WITH_COMMENT = JOB.replace(
    "  template:",
    "  podFailurePolicy:\n    rules:\n    # ours\n    - action: FailJob  # at once\n"
    "      onExitCodes: {operator: In, values: [42]}\n"
    "    - action: Count\n      onPodConditions: [{type: Other}]\n  template:",
)


def run(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def mended(text: str, *arguments: str) -> str:
    result = run("mend", "-", *arguments, given=text)
    assert result.exit_code == 0, result.output
    return result.stdout


def objects(text: str) -> list[Any]:
    source = read("x", text.encode())
    assert source.complaints == ()
    return [at(document.data, item.path) for document in source.documents for item in document.items]


@pytest.mark.parametrize("case", CAPTURED)
def test_mend_and_the_webhook_lead_to_the_same_object(case: str) -> None:
    own, sent = pair(case)
    (ours,) = objects(mended(json.dumps(own)))
    ours, theirs = defaulted(ours), defaulted(engine.mutate(sent, POLICY).object)
    kind = KINDS[(sent["apiVersion"].rpartition("/")[0], sent["kind"])]
    assert kind.template is not None
    fields = [(*kind.job, field) for field in JOB_FIELDS] if kind.job else []
    pod = [(*kind.template, "spec", name) for name in ("restartPolicy", "terminationGracePeriodSeconds")]
    for path in (*fields, *pod, (*kind.template, "metadata", "annotations"), ("metadata", "annotations")):
        assert at(ours, path) == at(theirs, path), path


@pytest.mark.parametrize("path", sorted((CASES / "inputs").glob("*.yaml")), ids=lambda path: path.stem)
def test_mend_keeps_every_line_of_the_author_that_need_not_change_and_mends_once(path: Path) -> None:
    before = path.read_text()
    result = run("mend", str(path))
    assert result.exit_code == 0
    assert run("mend", "-", given=result.stdout).stdout == result.stdout
    steps = [json.loads(line) for line in run("mend", "--patch", str(path)).stdout.splitlines()]
    patched = {entry["line"]: entry["patch"] for entry in steps}
    source = read("x", before.encode())
    wanted = [
        jsonpatch.apply_patch(document.data, patched.get(item.line, []))
        for document in source.documents
        for item in document.items
    ]
    assert objects(result.stdout) == wanted
    for line in before.splitlines():
        if "#" in line:
            assert line in result.stdout


def test_mend_changes_nothing_but_what_has_to_change() -> None:
    assert (
        mended(JOB, "--diff")
        == """\
--- a/stdin
+++ b/stdin
@@ -3,10 +3,22 @@
 kind: Job
 metadata:
   name: 'nightly'   # quoted
+  annotations:
+    drainproof.dev/mended: '{"/spec/podReplacementPolicy":"TerminatingOrFailed"}'
 spec:
   backoffLimit: 4  # four
   activeDeadlineSeconds: 3600
+  podFailurePolicy:
+    rules:
+    - action: Ignore
+      onPodConditions:
+      - type: DisruptionTarget
+        status: "True"
+  podReplacementPolicy: Failed
   template:
+    metadata:
+      annotations:
+        drainproof.dev/completion-guard: "on"
     # about the Pod
     spec:
       restartPolicy: Never
"""
    )


def test_mend_puts_its_rule_in_front_of_the_authors_and_keeps_their_comments() -> None:
    text = mended(RULES_WITH_COMMENT)
    assert "- action: FailJob  # at once\n      onExitCodes: {operator: In, values: [42]}\n" in text
    rules = objects(text)[0]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "FailJob", "Count"]
    assert rules[2] == {"action": "Count", "onPodConditions": [{"type": "Other"}]}


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
def test_mend_keeps_line_ends(newline: str) -> None:
    text = CliRunner().invoke(main, ["mend", "-"], input=JOB.replace("\n", newline).encode()).stdout_bytes.decode()
    assert text.count("\r\n") == (text.count("\n") if newline == "\r\n" else 0)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(objects(JOB)[0], indent=2),
        json.dumps(objects(JOB)[0], indent="\t"),
        json.dumps(objects(JOB)[0]),
        "{apiVersion: batch/v1, kind: Job, metadata: , spec: {template: {metadata: {annotations: {}}, spec: {}}}}",
        JOB.replace("metadata:\n  name: 'nightly'   # quoted\n", "metadata: # none\n"),
        JOB.replace("metadata:\n  name: 'nightly'   # quoted\n", "metadata: null\n"),
        JOB.replace("metadata:\n  name: 'nightly'   # quoted\n", "metadata: {}\n"),
        JOB.replace("metadata:\n  name: 'nightly'   # quoted\n", "metadata: &m {annotations: &a {x: z}}\n").replace(
            "    # about the Pod\n", "    metadata:\n      annotations: *a\n"
        ),
        JOB.replace("  name: 'nightly'   # quoted\n", "  annotations: &a\n    x: z\n").replace(
            "    # about the Pod\n", "    metadata: {annotations: {<<: *a}}\n"
        ),
        JOB.replace("restartPolicy: Never", "restartPolicy: >-\n        OnFailure"),
        JOB.replace("  backoffLimit: 4  # four\n", ""),
        JOB.replace("  backoffLimit: 4  # four\n", "  podFailurePolicy: {rules: []}\n"),
        JOB.replace("  backoffLimit: 4  # four\n", "  podFailurePolicy:\n    rules:\n"),
        "apiVersion: v1\nkind: List\nitems:\n- "
        + JOB.replace("\n", "\n  ").rstrip(" ")
        + "- {kind: Pod, apiVersion: v1}\n",
        json.dumps({"apiVersion": "batch/v1", "kind": "JobList", "items": [{"spec": objects(JOB)[0]["spec"]}] * 2}),
    ],
)
def test_mend_edits_any_way_of_writing_a_job(text: str) -> None:
    once = mended(text)
    before, after = objects(text), objects(once)
    for old, new in zip(before, after, strict=True):
        named = {"apiVersion": "batch/v1", "kind": "Job"}
        assert defaulted(named | new) == defaulted(engine.mutate(defaulted(named | old), POLICY).object)
    assert once != text
    assert mended(once) == once


def test_mend_leaves_other_documents_as_they_are() -> None:
    other = "# kept\napiVersion: v1\nkind: ConfigMap\ndata: {a: yes}\n"
    assert mended(f"{other}---\n{other}") == f"{other}---\n{other}"
    assert mended(f"{other}---\n{JOB}---\n{other}").startswith(f"{other}---\n# the nightly run\n")


def test_mend_leaves_cron_jobs_alone_unless_the_policy_says_otherwise(tmp_path: Path) -> None:
    cron = (CASES / "inputs/065-cronjob-etcd-snapshot-forbid-pvc.yaml").read_text()
    assert mended(cron) == cron
    chosen = tmp_path / "policy.yaml"
    chosen.write_text("apiVersion: drainproof.dev/v1\nkind: Policy\ncronJobs: {fix: true}\n")
    assert "DisruptionTarget" in mended(cron, "--policy", str(chosen))


def test_mend_puts_separators_between_files(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text("apiVersion: v1\nkind: Secret")
    assert run("mend", *map(str, files)).stdout == "apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Secret\n"


def test_mend_writes_in_place_and_keeps_the_mode(tmp_path: Path) -> None:
    file, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    file.chmod(0o640)
    other.write_text("kind: Job\n")
    result = run("mend", "-w", str(file))
    assert (result.exit_code, result.stdout) == (0, f"{file}: rewritten\n")
    assert file.read_bytes().startswith(b"\xef\xbb\xbf# the nightly run")
    assert b"DisruptionTarget" in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert run("mend", "-w", str(file)).stdout == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("bom", "encoding"),
    [
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_mend_keeps_the_encoding_and_the_order_of_its_bytes(tmp_path: Path, bom: bytes, encoding: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(bom + JOB.encode(encoding))
    assert run("mend", "-w", str(file)).exit_code == 0
    content = file.read_bytes()
    assert content.startswith(bom)
    assert content.removeprefix(bom).decode(encoding) == mended(JOB)


def test_mend_does_not_rewrite_a_file_that_it_cannot_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{JOB}---\na: [\n")
    result = run("mend", "-w", str(file))
    assert result.exit_code == 2
    assert "it is not rewritten" in result.stderr
    assert file.read_text() == f"{JOB}---\na: [\n"
    assert run("mend", "-w", "-", given=JOB).exit_code == 2


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        (JOB, (), 0),
        (DENIED, (), 1),
        (WARNED, (), 0),
        (WARNED, ("--fail-on", "warn"), 1),
        (JOB, ("--fail-on", "warn"), 0),
        ("a: [\n---\n" + DENIED, (), 2),
        (JOB + "---\nkind: Job\n", (), 2),
        ("", (), 0),
        (JOB, ("--policy", "/no/such/file"), 2),
    ],
)
@pytest.mark.parametrize("command", ["check", "mend"])
def test_exit_codes(command: str, text: str, arguments: tuple[str, ...], code: int) -> None:
    result = run(command, "-", *arguments, given=text)
    assert result.exit_code == code
    assert ("Error:" in result.stderr) == (code == 2)


def test_check_in_json_prints_findings_and_nothing_else() -> None:
    result = run("check", "-o", "json", "-", given=DENIED + "---\na: [\n")
    (found,) = json.loads(result.stdout)
    assert list(found) == ["file", "line", "kind", "namespace", "name", "rule", "level", "path", "message"]
    assert (found["rule"], found["level"], found["line"], found["name"]) == ("grace-budget", "deny", 12, "nightly")
    assert "stdin:" in result.stderr
    assert result.exit_code == 2
    assert json.loads(run("check", "-o", "json", "-", given="").stdout) == []


def test_check_in_text_ends_with_a_summary(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(DENIED)
    (tmp_path / "b.yaml").write_text(WARNED)
    lines = run("check", str(tmp_path), str(tmp_path / "missing")).stdout.splitlines()
    assert lines[0] == str(tmp_path / "a.yaml")
    assert "deny  Job nightly: " in lines[1]
    assert lines[-1] == "2 objects read, 2 judged, 1 denied, 1 warned, 1 mended"


def test_a_policy_with_mistakes_names_them_all(tmp_path: Path) -> None:
    chosen = tmp_path / "policy.yaml"
    chosen.write_text("apiVersion: drainproof.dev/v1\nkind: Policy\nx: 1\nrules: {grace-budget: {level: loud}}\n")
    result = run("check", "-", "--policy", str(chosen), given=JOB)
    assert result.exit_code == 2
    assert result.stderr.count("Error:") == 2


def test_review_answers_as_the_webhook_would() -> None:
    file = str(CASES / "reviews" / "029-explicit-terminatingorfailed.0.mutate.json")
    plain, decoded = run("review", file, "--as", "mutate"), run("review", file, "--as", "mutate", "--decode")
    assert plain.exit_code == 0
    assert isinstance(json.loads(plain.stdout)["response"]["patch"], str)
    assert json.loads(decoded.stdout)["response"]["patch"][0]["path"] == "/spec/podFailurePolicy"
    assert run("review", "-", "--as", "validate", given="{}").exit_code == 2
    assert run("review", "/no/such", "--as", "validate").exit_code == 2
    assert run("review", file).exit_code == 2


def test_review_exits_with_1_where_the_object_is_denied() -> None:
    (job,) = objects(DENIED)
    request = {"uid": "u", "operation": "CREATE", "kind": {}, "object": defaulted(job)}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    result = run("review", "-", "--as", "validate", given=json.dumps(review))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["response"]["allowed"] is False


def raises(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize("deed", ["mutate", "validate"])
@pytest.mark.parametrize("by_rule", [True, False])
def test_a_review_that_cannot_be_decided_is_one_plain_sentence_and_no_denial(
    monkeypatch: pytest.MonkeyPatch, deed: str, by_rule: bool
) -> None:
    faulty = replace(next(rule for rule in RULES if rule.id == "restart-policy"), check=raises)
    monkeypatch.setattr(*("webhook.cli.RULES", (faulty,)) if by_rule else ("webhook.review.respond", raises))
    (job,) = objects(JOB)
    request = {"uid": "u-1\n", "operation": "CREATE", "kind": {}, "object": defaulted(job)}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    result = run("review", "-", "--as", deed, given=json.dumps(review))
    what = f"the rule {faulty.id}" if by_rule else "the decision"
    told = f"Error: -: {what} raised on the request u-1?; that is a fault of drainproof's, please report it\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


@pytest.mark.parametrize("command", ["check", "mend", "review", "serve"])
def test_help_has_examples(command: str) -> None:
    assert (
        run(command, "--help").output.count("  drainproof ") + run(command, "--help").output.count("| drainproof") == 2
    )


def test_the_help_of_serve_says_how_a_client_gets_to_a_trial() -> None:
    text = run("serve", "--help").output
    lines = [line.strip() for line in text.splitlines()]
    assert "drainproof serve --dev" in lines
    assert any(line.startswith("drainproof serve --certificate ") and " --policy " in line for line in lines)
    assert any(line.startswith("curl --cacert ca.crt ") for line in lines)
    assert "clientConfig.url https://localhost:8443/mutate" in " ".join(text.split())
    assert "clientConfig.caBundle" in text


def test_help_lists_every_command_and_the_version_is_told() -> None:
    assert all(name in run("--help").stdout for name in ("check", "mend", "review", "serve"))
    assert run("--version").stdout.startswith("drainproof, version ")
    assert run("check").exit_code == 2


def start(*arguments: str, **given: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "webhook", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, **given)


def test_check_starts_fast_and_without_the_libraries_of_the_server() -> None:
    code = "import sys, webhook.cli; print(sorted({'starlette', 'uvicorn', 'rich', 'cryptography'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.yaml").write_text(WARNED)
    with start("check", str(tmp_path)) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_an_interrupt_ends_it_with_130() -> None:
    with start("check", "-", env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


TEXTS = st.text("ab: #'\"-yn1{}[]é", max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)
MAPS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES, min_size=1, max_size=4)


STYLES = ["json", "indented", "block", "commented", "flow"]


def in_style(value: dict[str, Any], style: str) -> str:
    lines = scalar.block(value)
    return {
        "json": json.dumps(value),
        "indented": json.dumps(value, indent=2),
        "block": "\n".join(lines) + "\n",
        "commented": "".join(f"# above {n}\n{line} # on {n}\n" for n, line in enumerate(lines)),
        "flow": scalar.flow(value, as_json=False),
    }[style]


def meaning(text: str, as_json: bool) -> Any:
    node = jsontext.parse(text) if as_json else yamltext.parse(text)
    assert node is not None
    return data(node)


@settings(max_examples=300, deadline=None)
@given(MAPS, MAPS, st.sampled_from(STYLES))
def test_an_edited_text_means_what_was_wanted_or_is_refused(old: Any, added: Any, style: str) -> None:
    as_json = style in ("json", "indented")
    text = in_style(old, style)
    wanted = {**old, **{key: value for key, value in added.items() if not isinstance(value, list) or key not in old}}
    try:
        edited = splice.rewritten(text, wanted, as_json)
    except splice.SpliceError:
        return
    assert meaning(edited, as_json) == wanted


def without(value: Any, goes: Callable[[], bool]) -> Any:
    """A value without the members that go, at every depth; lists keep their length."""
    if isinstance(value, list):
        return [without(item, goes) for item in value]
    if isinstance(value, dict):
        return {key: without(member, goes) for key, member in value.items() if not goes()}
    return value


@settings(max_examples=500, deadline=None)
@given(MAPS, st.dictionaries(st.sampled_from(["f", "g"]), VALUES), st.sampled_from(STYLES), st.randoms())
def test_members_can_be_taken_out_of_any_map_in_any_style(old: Any, added: Any, style: str, chance: Random) -> None:
    as_json = style in ("json", "indented")
    wanted = without(old, lambda: chance.random() < 0.4) | added
    edited = splice.rewritten(in_style(old, style), wanted, as_json)
    assert meaning(edited, as_json) == wanted
    if style == "indented" and not added:
        assert edited == json.dumps(wanted, indent=2)


@pytest.mark.parametrize(
    ("text", "paths", "result"),
    [
        ("# c\na: 1 # on a\n# above b\nb: 2 # on b\n", ["a"], "# c\n# above b\nb: 2 # on b\n"),
        ("a: 1 # on a\nb:\n  c: 2 # on c\n  d:\n  - 3\n# end\n", ["b"], "a: 1 # on a\n# end\n"),
        ("# c\na: 1 # on a\nb: 2\n# end\n", ["a", "b"], "# c\n{}\n# end\n"),
        ("m: # on m\n  a: 1 # on a\no: 2\n", ["m.a"], "m: {} # on m\no: 2\n"),
        ("m: &x !!map # on m\n  a: 1\n", ["m.a"], "m: &x !!map {} # on m\n"),
        ("m:\r\n  a: |\r\n    1\r\no: 2\r\n", ["m.a"], "m: {}\r\no: 2\r\n"),
        ("l:\n- a: 1 # on a\n  # above b\n  b: 2\n", ["l.0.a"], "l:\n- # above b\n  b: 2\n"),
        ("l:\n- a: 1 # on a\n- b: 2\n", ["l.0.a"], "l:\n- {}\n- b: 2\n"),
        ("a: |\n  x\n\n# above b\nb: 2", ["a"], "# above b\nb: 2"),
        ("a: 1\nb: 2", ["b"], "a: 1\n"),
        ("{ a: 1, b: 2 }", ["a"], "{ b: 2 }"),
        ("{ a: 1, b: 2 }", ["b"], "{ a: 1 }"),
        ("m: &x { a: 1, b: 2 } # on m\n", ["m.a", "m.b"], "m: &x {} # on m\n"),
        (
            "{\n  a: 1, # on a\n  # above b\n  b: 2, # on b\n  # above c\n  c: 3, # on c\n}\n",
            ["b"],
            "{\n  a: 1, # on a\n  # above b\n  # above c\n  c: 3, # on c\n}\n",
        ),
        (
            "{\n  a: 1, # on a\n  b: 2, # on b\n  c: 3 # on c\n}\n",
            ["c", "b"],
            "{\n  a: 1 # on a\n}\n",
        ),
        ("{a: 1, # on a\n b: 2}\n", ["b"], "{a: 1 # on a\n }\n"),
        ("a: &x 1\nb: *x\n", ["a"], "b: 1\n"),
        ("m: &x {a: 1, b: 2}\no: *x\n", ["o.a"], "m: &x {a: 1, b: 2}\no: {b: 2}\n"),
        ("m: &x {a: 1}\no: {<<: *x, b: 2}\n", ["o.b"], "m: &x {a: 1}\no: {<<: *x}\n"),
    ],
)
def test_what_is_taken_out_takes_its_own_comment_along_and_no_other(text: str, paths: list[str], result: str) -> None:
    wanted = json.loads(json.dumps(meaning(text, as_json=False)))
    for path in paths:
        *way, key = (int(part) if part.isdigit() else part for part in path.split("."))
        del at(wanted, way)[key]
    assert splice.rewritten(text, wanted) == result


def test_what_is_merged_in_from_elsewhere_cannot_be_taken_out() -> None:
    with pytest.raises(splice.SpliceError, match="cannot be edited in place"):
        splice.rewritten("m: &x {a: 1}\no: {<<: *x, b: 2}\n", {"m": {"a": 1}, "o": {"b": 2}})


def test_mend_grants_a_wish_that_nothing_stands_there() -> None:
    text = JOB.replace("  backoffLimit: 4  # four\n", "  suspend: false # not now\n  backoffLimit: 4  # four\n")
    source = read("x", text.encode())
    (judgement,) = (one for one in judged(source, POLICY) if isinstance(one, Judged))
    wishes = (Drop(("spec", "suspend")), Drop(("metadata", "name")), Put(("metadata", "labels"), {"a": "b"}))
    assert mending.text(source, [replace(judgement, wishes=wishes)]) == (
        JOB.replace("  name: 'nightly'   # quoted\n", "  labels:\n    a: b\n"),
        [],
    )

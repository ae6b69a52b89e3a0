"""The pages in docs that are made from the code: `python -m tests.pages docs` writes them anew.

A rule's page is the prose of its module, its options, and the cases of its table that are marked `page: true`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tables import CASES, Case, cases, merged, read, without_record
from webhook import settings
from webhook.controller import settings as controller
from webhook.core import engine, page, ruleset
from webhook.core.rule import Rule
from webhook.core.schema import FIX, LEVEL, schema
from webhook.core.verdict import Verdict
from webhook.rules import RULES
from webhook.source import scalar

FIXES = {True: "on", False: "off by default", None: "none: there is nothing to mend"}


def pages() -> dict[str, str]:
    """Every generated file, by its path below docs."""
    return {
        **{f"rules/{rule.id}.md": rule_page(rule) for rule in RULES},
        "rules/README.md": index(),
        "settings.md": SETTINGS + settings.table() + CONTROLLER + controller.table(),
        "policy.schema.json": json.dumps(schema(RULES), indent=2, ensure_ascii=False) + "\n",
    }


SETTINGS = """\
# Settings

What `drainproof serve` can be told. A flag counts before its environment variable.
What the rules do is not set here but in the [policy](policy.md).

"""

CONTROLLER = """
## Of the controller

What `drainproof controller` can be told.

"""

EXAMPLES = """\
Each example says in what it differs from the object above it; `null` stands for a field that is left out. What is said
is what the program says."""

INDEX = """\
# The rules

In the order in which they run. The word in brackets at the end of a message is the name of its rule, and
`drainproof explain <rule>` prints its page. *Level* says what becomes of a finding, *fix* whether objects are
mended; both are what holds when the [policy](../policy.md) says nothing else.

| Rule | Level | Fix | What it is about |
|---|---|---|---|
"""


def index() -> str:
    """The list of all rules."""
    rows = (
        f"| [{rule.id}]({rule.id}.md) | {rule.level} | {page.fix(rule)} | {page.summary(rule)} |\n" for rule in RULES
    )
    return INDEX + "".join(rows)


def rule_page(rule: Rule) -> str:
    """The page of one rule."""
    first, *rest = page.paragraphs(rule)
    facts = f"Level: **{rule.level}** · Fix: **{FIXES[rule.fix]}** · Looks at: {', '.join(page.kinds(rule))}"
    parts = [f"# {rule.id}", first, facts, *rest, "## Options", options(rule), *examples(rule)]
    return "\n\n".join(parts) + "\n\n[All rules](README.md)\n"


def options(rule: Rule) -> str:
    """The table of what a policy can say of a rule."""
    rows = [("level", "ignore, warn or deny", rule.level.value, LEVEL)]
    if rule.fix is not None:
        rows.append(("fix", "true or false", scalar.written(rule.fix), FIX))
    rows += [(one.name, page.takes(one.kind), str(one.default), one.says) for one in page.entries(rule)]
    lines = [f"Under `rules.{rule.id}` in a [policy](../policy.md):", ""]
    lines += ["| Option | Takes | Default | What it is for |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {takes} | `{default}` | {says} |" for name, takes, default, says in rows]
    return "\n".join(lines)


def examples(rule: Rule) -> Iterator[str]:
    """The telling cases of a rule's table, under the objects that they start from."""
    path = CASES / f"{rule.id}.yaml"
    table = read(path)
    chosen = [(raw, case) for raw, case in zip(table["cases"], cases(path), strict=True) if raw.get("page")]
    yield "## Examples"
    yield EXAMPLES
    seen: list[str] = []
    for name, base in table["bases"].items():
        ours = [(raw, case) for raw, case in chosen if raw.get("base", "job") == name]
        if ours:
            yield f"### {'Another' if base['kind'] in seen else 'A'} {base['kind']}"
            yield snippet(base)
            seen.append(base["kind"])
            for raw, case in ours:
                yield from example(raw, case, base)


def example(raw: dict[str, Any], case: Case, base: dict[str, Any]) -> Iterator[str]:
    """One case: what is given, what is said, what comes out."""
    yield f"#### {heading(case.name)}"
    sections = {**({"rules": raw["rules"]} if "rules" in raw else {}), **raw.get("policy", {})}
    given = merged(base, raw.get("given", {}))
    if sections:
        yield "Under the policy"
        yield snippet({"apiVersion": ruleset.API_VERSION, "kind": "Policy", **sections})
    if given != base:
        yield "given" if sections else "Given"
        yield snippet(difference(base, given))
    verdict = foreseen(given, case)
    if verdict.notices:
        yield "it says" if sections or given != base else "It says"
        yield fenced("text", [f"{notice.level}: {notice.message}" for notice in verdict.notices])
    yield from outcome(given, case, verdict)


def foreseen(given: Any, case: Case) -> Verdict:
    """What comes of a case's object, by the webhook that it comes to."""
    if case.deleted_by:
        return engine.stamp(given, case.policy, case.deleted_by)
    return engine.guard(given, case.policy) if case.is_status else engine.foresee(given, case.policy)


def heading(name: str) -> str:
    """A case's name as a title: a word of the language gets a capital letter, a field or a value does not."""
    first = name.partition(" ")[0]
    return name if not first.islower() or first in ("true", "false") else name[0].upper() + name[1:]


def outcome(given: Any, case: Case, verdict: Verdict) -> Iterator[str]:
    """What becomes of a case's object."""
    changed = verdict if case.is_status or case.deleted_by else engine.mutate(given, case.policy)
    after, record = without_record(changed.object)
    if verdict.denied:
        yield "The object is refused."
    elif after == given:
        yield "The object stays as it is." if verdict.notices else "Nothing is said, and the object stays as it is."
    else:
        yield "and makes of it" if verdict.notices else "Nothing is said. It becomes"
        yield snippet(difference(given, after))
        if record:
            yield "What stood there before is kept in the annotation `drainproof.dev/mended`."


def difference(before: Any, after: Any) -> Any:
    """What of `after` is not so in `before`: a map of what differs, with null for what is gone."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    changed = {key: difference(before.get(key), value) for key, value in after.items() if before.get(key) != value}
    return {**changed, **dict.fromkeys(key for key in before if key not in after)}


def snippet(value: dict[str, Any]) -> str:
    """A map as a block of YAML."""
    return fenced("yaml", scalar.block(value))


def fenced(language: str, lines: list[str]) -> str:
    """A block of code."""
    return "\n".join([f"```{language}", *lines, "```"])


def main(folder: Path) -> None:
    """Writes every page below a folder."""
    made = pages()
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{folder}: {len(made)} pages")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

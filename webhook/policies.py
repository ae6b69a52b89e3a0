"""The commands around policy documents: what is in force, whether a file is valid, what can be written."""

import json
import sys
from pathlib import Path

import click

from webhook import policyfile, policytext
from webhook.command import refuse
from webhook.core.policy import default
from webhook.core.schema import schema as schema_of
from webhook.report.finding import printable
from webhook.rules import RULES

_file = click.Path(path_type=Path)


@click.group()
def policy() -> None:
    """Shows, validates and describes policies.

    A policy document says what becomes of the findings of each rule, what is mended, and whom that
    concerns. Without one the defaults are in force.
    """


@policy.command()
@click.argument("file", required=False, type=_file)
def show(file: Path | None) -> None:
    """Prints the policy in force as a whole document.

    Every rule is there with its level, fix and options, and with what each of them is for. With FILE,
    what it sets is merged in and marked. The output is a policy document itself.

    \b
    Examples:
      drainproof policy show > policy.yaml
      drainproof policy show policy.yaml
    """
    try:
        chosen = default(RULES) if file is None else policyfile.load(file, RULES)
    except policyfile.PolicyFileError as error:
        refuse(map(printable, error.problems))
    click.echo(policytext.written(chosen, RULES, "" if file is None else printable(str(file))), nl=False)


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_file, metavar="FILE...")
def validate(files: tuple[Path, ...]) -> None:
    """Says everything that is wrong with policy files.

    A file that can be used is named on stdout. Each problem is a line on stderr with its file, line and
    path, and makes the exit code 2.
    """
    valid = [_is_valid(file) for file in files]
    sys.exit(0 if all(valid) else 2)


def _is_valid(file: Path) -> bool:
    try:
        policyfile.load(file, RULES)
    except policyfile.PolicyFileError as error:
        click.echo("\n".join(map(printable, error.problems)), err=True)
        return False
    click.echo(f"{printable(str(file))}: valid")
    return True


@policy.command()
def schema() -> None:
    """Prints the JSON Schema of policy documents.

    With it an editor completes and checks a policy while it is written. For editors that use the YAML
    language server, put a line with the place of the schema at the top of the policy.

    \b
    Examples:
      drainproof policy schema > policy.schema.json
      # yaml-language-server: $schema=policy.schema.json
    """
    click.echo(json.dumps(schema_of(RULES), indent=2, ensure_ascii=False))

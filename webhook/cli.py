"""The command `drainproof`: the composition root."""

import json
import sys
from pathlib import Path
from typing import get_args

import click

from webhook import __version__, mending, policyfile
from webhook import review as envelope
from webhook.command import Commands, refuse
from webhook.core import policy
from webhook.core.policy import Policy
from webhook.judging import findings
from webhook.outcome import Outcome, sources
from webhook.probe import probe
from webhook.report import json as json_report
from webhook.report import text as text_report
from webhook.report.finding import printable
from webhook.rules import RULES
from webhook.source.document import Complaint, Source


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="drainproof")
def main() -> None:
    """Makes Kubernetes Jobs survive being drained, and says in plain words when they will not.

    The same rules run here and in the admission webhook: `check` tells what the webhook would say of your manifests,
    `mend` what it would make of them.
    """


main.add_command(probe)  # it loads what runs programs when it is called
_files = click.argument("files", nargs=-1, required=True, metavar="FILES...|-")
_recursive = click.option("-R", "--recursive", is_flag=True, help="Also take the manifests in folders inside a folder.")
_policy = click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="A policy document to go by.")
_fail_on = click.option(
    "--fail-on",
    type=click.Choice(["deny", "warn"]),
    default="deny",
    show_default=True,
    help="What makes the exit code 1.",
)


@main.command()
@_files
@_recursive
@_policy
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The format."
)
@_fail_on
def check(files: tuple[str, ...], recursive: bool, policy_file: Path | None, output: str, fail_on: str) -> None:
    """Says what the webhook would say of manifests, without a cluster.

    Takes YAML and JSON, files with many documents, lists, and folders; objects of other kinds are
    passed over. Each object is first given the API server's defaults. Exits with 1 where something is
    denied, and with 2 where something cannot be read (what can be is checked all the same).

    \b
    Examples:
      drainproof check job.yaml charts/
      helm template . | drainproof check --fail-on warn -
    """
    outcome = Outcome(_policy_from(policy_file), fail_on)
    told = (finding for source in sources(files, recursive) for one in outcome.of(source) for finding in findings(one))
    if output == "json":
        click.echo(json_report.rendered(told))
    else:
        text_report.show(text_report.rendered(told), sys.stdout)
        click.echo(str(outcome.tally))
    outcome.end()


@main.command()
@_files
@_recursive
@_policy
@click.option("--diff", "form", flag_value="diff", help="Print what changes as a unified diff.")
@click.option(
    "--patch",
    "form",
    flag_value="patch",
    help="Print an RFC 6902 patch for each object, a line of JSON each.",
)
@click.option("-w", "--write", "form", flag_value="write", help="Rewrite the files themselves.")
@_fail_on
def mend(files: tuple[str, ...], recursive: bool, policy_file: Path | None, form: str | None, fail_on: str) -> None:
    """Prints manifests as the webhook would leave them.

    Only what has to change is changed: comments, order and quotes of the author stay. What the webhook
    would say goes to stderr; exit codes are those of check. A CronJob is left as it is unless the
    policy says `cronJobs.fix: true`.

    \b
    Examples:
      drainproof mend --diff job.yaml
      drainproof mend -w -R manifests/
    """
    if form == "write" and "-" in files:
        raise click.UsageError("Standard input cannot be rewritten; leave out --write.")
    outcome = Outcome(_policy_from(policy_file), fail_on)
    texts = (_mended(source, outcome, form) for source in sources(files, recursive))
    for part in mending.joined(texts) if form is None else texts:
        click.echo(part, nl=False)
    outcome.end()


def _mended(source: Source, outcome: Outcome, form: str | None) -> str:
    """What mend prints for one file."""
    judgements = list(outcome.of(source))
    told = (finding for one in judgements for finding in findings(one))
    text_report.show((line for line in text_report.rendered(told) if line), sys.stderr)
    if form == "patch":
        return "".join(mending.patch(one) + "\n" for one in judgements if one.wishes)
    text, complaints = mending.text(source, judgements)
    outcome.complain(complaints)
    if form == "diff":
        return "".join(mending.diff(source, text))
    if form is None:
        return text
    return _written(source, text, outcome, bool(source.complaints or complaints))


def _written(source: Source, text: str, outcome: Outcome, faulty: bool) -> str:
    if text == source.text:
        return ""
    if faulty:
        outcome.complain([Complaint(source.name, 0, "it is not rewritten, for parts of it cannot be read")])
        return ""
    try:
        mending.write(source, text)
    except OSError as error:
        outcome.complain([Complaint(source.name, 0, f"it cannot be written: {error.strerror}")])
        return ""
    return f"{source.name}: rewritten\n"


@main.command()
@click.argument("file", metavar="FILE|-")
@click.option("--as", "deed", type=click.Choice(get_args(envelope.Deed)), required=True, help="Which webhook answers.")
@_policy
@click.option("--decode", is_flag=True, help="Print the steps of the patch instead of its base64 text.")
def review(file: str, deed: envelope.Deed, policy_file: Path | None, decode: bool) -> None:
    """Answers an AdmissionReview as the webhook would.

    Reads the JSON that the API server sends and prints the answer. Exits with 1 where the object is
    denied, and with 2 where there is no answer: the input is no review, or a rule raised, which the
    webhook answers with HTTP 500. With --as stamp it is the controller's answer, which allows every
    deletion; its audit annotation says whether the Pod would be stamped.

    \b
    Examples:
      drainproof review request.json --as mutate --decode
      kubectl logs ... | drainproof review - --as validate
    """
    chosen = _policy_from(policy_file)
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        _, verdict, answer = envelope.decide(body, chosen, deed)
    except (OSError, envelope.ReviewError) as error:
        refuse([f"{file}: {getattr(error, 'strerror', None) or error}"])
    except envelope.UndecidedError as error:
        uid = printable(error.request.uid)
        refuse([f"{file}: {error} on the request {uid}; that is a fault of drainproof's, please report it"])
    response = json.loads(answer)
    if decode and "patch" in response["response"]:
        response["response"]["patch"] = verdict.steps
    click.echo(json.dumps(response, indent=2, ensure_ascii=False))
    sys.exit(0 if response["response"]["allowed"] else 1)


def _policy_from(file: Path | None) -> Policy:
    """The policy of a file, or the shipped one. Exits with 2 and every problem on stderr."""
    if file is None:
        return policy.default(RULES)
    try:
        return policyfile.load(file, RULES)
    except policyfile.PolicyFileError as error:
        refuse(error.problems)

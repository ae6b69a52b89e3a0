"""`drainproof uninstall`: looks at whose installation it is, then removes it and says what becomes of each object."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from webhook.command import refuse
from webhook.controller.api import Api, ApiError, ConnectionSettingsError
from webhook.controller.settings import Settings
from webhook.flags import FILE
from webhook.uninstall import kinds
from webhook.uninstall.account import Account
from webhook.uninstall.claim import Claim, claim, still_controlled
from webhook.uninstall.reach import reached
from webhook.uninstall.removal import Removal

_DEFAULT: Final = Settings()


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for; `part` is empty for everything."""

    namespace: str
    dry_run: bool
    part: str | None
    secret: str
    keep_namespace: bool
    without_helm: bool
    wait_seconds: int


@click.command()
@click.option("--kubeconfig", type=FILE, help="File that says how to reach the API server.  [default: as kubectl]")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.  [default: the current one]")
@click.option(
    "-n", "--namespace", metavar="NAME", default=_DEFAULT.namespace, show_default=True, help="Where it is installed."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed, in the order in which it would be.")
@click.option(
    "--configurations-only",
    "part",
    flag_value="configurations",
    help="Only the two webhook configurations: nobody asks any more, and everything else goes on.",
)
@click.option(
    "--leftovers-only",
    "part",
    flag_value="leftovers",
    help="Only what the controller made while it ran, where the rest is gone: two Secrets, a Lease, a ConfigMap.",
)
@click.option(
    "--secret",
    metavar="NAME",
    default=_DEFAULT.secret,
    show_default=True,
    help="Secret of the serving certificate, where the chart was told another name.",
)
@click.option("--keep-namespace", is_flag=True, help="Leave the namespace, even with nothing in it.")
@click.option("--without-helm", is_flag=True, help="Remove a release of Helm too; its record stays.")
@click.option(
    "--wait-seconds",
    type=click.IntRange(0, 3600),
    metavar="N",
    default=120,
    show_default=True,
    help="How long to wait for the controller to end, and again for the namespace to go.",
)
def uninstall(kubeconfig: Path | None, context: str | None, **given: Any) -> None:
    """Removes drainproof from a cluster, the webhook configurations first.

    Without these nobody asks the webhook, so that nothing is refused or kept waiting while the rest
    goes: the Deployments, and once the controller has ended, everything in the namespace or
    cluster-wide that carries the label app.kubernetes.io/name=drainproof, with what the controller
    made. The namespace goes last, if it carries the label and holds nothing else. What others made
    stays, even under a name of ours; Jobs that were mended stay as they are.

    What Helm installed is left to `helm uninstall`, which removes the configurations first as well.
    The command can be run again: what is gone already is no error. Exits with 0 where all that was to
    go is gone, with 1 where something could not be removed (the rest is all the same), and with 2
    where nothing was tried: no API server answers, or it is for something else to remove.

    \b
    Examples:
      drainproof uninstall --dry-run
      drainproof uninstall
      drainproof uninstall --context production --namespace platform

    Where the webhook is in everybody's way, this takes a second and is enough; the command that
    installed it puts it back:

    \b
      drainproof uninstall --configurations-only
    """
    order = Order(**given)
    try:
        api = reached(kubeconfig, context)
        found = _asked(api, order)
    except (ConnectionSettingsError, ApiError) as error:
        refuse([str(error)])
    account = Account(click.echo, lambda text: click.echo(f"Error: {text}", err=True), order.dry_run)
    _carry_out(order, Removal(api, order.namespace, account, order.wait_seconds))
    for release in () if order.part or order.dry_run else found.releases:
        click.echo(f"The record of a Helm release stays; `{release.uninstall} --no-hooks` removes it.")
    _end(order, account)


def _asked(api: Api, order: Order) -> Claim:
    """Whose installation it is. Exits with 2 where it is not to be removed so; raises ApiError where nobody answers."""
    if order.part == "leftovers":
        if still_controlled(api, order.namespace):
            refuse(["the controller is there, and would make them again; leave out --leftovers-only"])
        return Claim(frozenset(), ())
    found = claim(api, order.namespace, only_configurations=order.part == "configurations")
    problems = [*found.elsewhere(order.namespace)]
    if not order.part and not order.without_helm:
        problems += found.by_helm()
    if problems:
        refuse(problems)
    return found


def _carry_out(order: Order, removal: Removal) -> None:
    if order.part == "configurations":
        removal.of(kinds.CONFIGURATIONS, by_name=True)
    elif order.part == "leftovers":
        removal.of(kinds.kept(order.secret), by_name=True)
    else:
        removal.everything(order.secret, order.keep_namespace)


def _end(order: Order, account: Account) -> None:
    """Sums up, and exits with 1 where something is left to do."""
    objects = f"{account.removed} object{'' if account.removed == 1 else 's'}"
    if account.removed:
        click.echo(f"{objects} would be removed." if order.dry_run else f"{objects} removed.")
    elif not account.problems:
        click.echo("There is nothing left to remove.")
    if account.problems:
        refuse(["not everything was done; the command can be run again when the reason is gone"], code=1)

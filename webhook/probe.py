"""`drainproof probe`: runs a command, stops it as a kubelet would, and says what it did."""

import json
import math
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import click

from webhook.core import declaration, duration
from webhook.core.declaration import length
from webhook.core.grace import covering
from webhook.core.rule import quoted
from webhook.core.shell import certain_sleep
from webhook.core.workload import PREFIX
from webhook.report.finding import printable

if TYPE_CHECKING:
    from webhook.probing import Event, Plan, Seen

Contract = Literal["kept", "broken", "unknown"]

EXITS: Final[dict[Contract, int]] = {"kept": 0, "broken": 1, "unknown": 2}
_NONZERO: Final = f"{PREFIX}{declaration.EXIT_CONTRACT}: nonzero-when-stopped"
_GUARD: Final = f"{PREFIX}{declaration.EXIT_CONTRACT}: guard"


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    nanoseconds = length(value)
    if nanoseconds is None:
        raise click.BadParameter(f"{quoted(value)} is no duration; write one such as 25s or 1m30s")
    return nanoseconds / duration.SECOND


def _words(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The words of a command, as a shell splits them."""
    try:
        words = tuple(shlex.split(value or ""))
    except ValueError as error:
        raise click.BadParameter(f"{quoted(value)} is no command: {str(error).lower()}") from None
    if value is not None and not words:
        raise click.BadParameter("there is no command in it")
    return words


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND ARGS...")
@click.option(
    "--after", callback=_seconds, metavar="DURATION", default="5s", show_default=True, help="When it is to be stopped."
)
@click.option(
    "--grace",
    callback=_seconds,
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="The terminationGracePeriodSeconds of its Pod.",
)
@click.option("--pre-stop", callback=_words, metavar="COMMAND", help="The exec preStop hook of its container.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The format."
)
def probe(command: tuple[str, ...], after: float, grace: float, pre_stop: tuple[str, ...], output: str) -> None:
    """Runs a program, stops it as a kubelet would, and says what it did.

    A Job whose program exits 0 when it is stopped becomes Complete with its work undone. Give the
    program more work than it can do in the time before it is stopped: then it shows whether it keeps
    drainproof.dev/exit-contract: nonzero-when-stopped, and how long it needs after SIGTERM.

    The order is a kubelet's: the preStop hook, SIGTERM, and SIGKILL when the grace period is used up,
    from which the whole seconds of the hook are taken, though 2s are left at least. SIGTERM goes to
    COMMAND itself and not to its children, just as in a container without an init such as tini. What
    it leaves running is killed when it ends, as the end of a container does. Its input is empty, and
    its output goes to stderr.

    Exits with 0 where the contract is kept, with 1 where COMMAND exits 0 when it is stopped, and with
    2 where nothing is learned, for it cannot be run or ends by itself before.

    \b
    Examples:
      drainproof probe -- python worker.py --queue nightly
      drainproof probe --after 1m --grace 60s --pre-stop 'sleep 5' -- ./worker

    It has to run where COMMAND can run. In an image that has drainproof in it, a Pod of its own does:

    \b
      kubectl run probe --image=IMAGE --restart=Never --rm -it --command -- drainproof probe -- ./worker

    For an image without it, build another one FROM it with drainproof and Python added, or run the
    program outside a container, with what it needs around it.
    """
    from webhook import probing  # noqa: PLC0415 - loads subprocess and ctypes, which no other command needs

    plan = probing.Plan(command, after, grace, pre_stop)
    try:
        seen = probing.run(plan, _say if output == "text" else lambda _: None)
    except OSError as error:
        if error.filename is None:  # not from starting COMMAND, which names it
            raise
        _refuse(command[0], error)
    except probing.OtherUserError:
        _stop(f"{printable(command[0])} runs as another user, so it cannot be stopped from here")
    except probing.StoppedError as error:
        sys.exit(128 + error.number)
    lines = list(says(plan, seen))
    if output == "json":
        told = {"command": command, "contract": contract(seen), "says": lines, **asdict(seen)}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo("\n" + "\n".join(lines))
    sys.exit(EXITS[contract(seen)])


def _say(event: "Event") -> None:
    click.echo(f"{event.seconds:8.2f} s  {printable(event.what)}")


def _refuse(name: str, error: OSError) -> NoReturn:
    reasons: dict[type[OSError], str] = {
        FileNotFoundError: "there is no such program, or its first line names an interpreter that is not there",
        PermissionError: "it is no executable file",
    }
    _stop(f"{printable(name)} cannot be run: {reasons.get(type(error), str(error.strerror).lower())}")


def _stop(problem: str) -> NoReturn:
    click.echo(f"Error: {problem}", err=True)
    sys.exit(2)


def contract(seen: "Seen") -> Contract:
    """Whether the program keeps the contract nonzero-when-stopped."""
    if seen.stage == "running":
        return "unknown"
    return "kept" if seen.exit_code else "broken"


def says(plan: "Plan", seen: "Seen") -> list[str]:
    """The verdict in sentences, the most important one first."""
    if seen.stage == "running":
        text = f"ends by itself after {seen.ran:.2f} s with exit code {seen.exit_code}, before it is stopped"
        return [f"{text}: nothing is learned; give it more work or a shorter --after"]
    lines = [_ending(seen)]
    if _by_sigterm(seen):
        lines.append(_as_first(seen))
    if seen.stage == "SIGTERM" and seen.took is not None and (seen.handler or not _by_sigterm(seen)):
        lines.append(_time(plan, seen, seen.took))
    if seen.pre_stop and not seen.pre_stop.ended and seen.stage != "preStop":
        lines.append("preStop takes longer than the grace period: shorten it, or set a longer one")
    if seen.left:
        which = "1 process" if seen.left == 1 else f"{seen.left} processes"
        lines.append(f"leaves {which} running, which SIGTERM does not reach and the end of the container kills")
    return lines


def _ending(seen: "Seen") -> str:
    """How it ended, and what to declare for it."""
    if not seen.exit_code:
        return (
            "exits 0 when stopped: the Job would be Complete with its work undone; exit with 143 while work is left, "
            f"or declare {_GUARD}"
        )
    if seen.stage == "SIGKILL" and seen.signal == "SIGKILL":
        how = "catches SIGTERM, goes on" if seen.handler else "ignores SIGTERM"
        return (
            f"{how} and needs SIGKILL after {seen.allowed:g} s: exit code 137, so declare {_NONZERO}; but what it is "
            "doing is cut off, so end on SIGTERM, or find out with a longer --grace how long it takes"
        )
    if seen.signal:
        return f"is ended by {seen.signal} when stopped, exit code {seen.exit_code}: declare {_NONZERO}"
    return f"exits {seen.exit_code} when stopped: declare {_NONZERO}"


def _by_sigterm(seen: "Seen") -> bool:
    return seen.stage == "SIGTERM" and seen.signal == "SIGTERM"


def _as_first(seen: "Seen") -> str:
    """What pid_namespaces(7) makes of such an end in a container: PID 1 gets no signal that it does not catch."""
    if seen.handler:
        return "as PID 1 of a container it cannot end itself by SIGTERM, so its exit code may be another one there"
    return (
        "as PID 1 of a container it has to catch SIGTERM for that: the kernel keeps the signal from a PID 1 that does "
        f"not, so that SIGKILL ends it after {seen.allowed:g} s (exit code 137)"
    )


def _time(plan: "Plan", seen: "Seen", took: float) -> str:
    """What to declare for the time after SIGTERM: whole seconds, which the rule grace-budget adds to the hook's."""
    task = max(math.ceil(took), 1) * duration.SECOND
    words = [f"{PREFIX}{declaration.TASK}: at least {duration.written(task)}"]
    before: float = 0
    if seen.pre_stop:
        known = certain_sleep(plan.pre_stop)
        before = math.ceil(seen.pre_stop.seconds) * duration.SECOND if known is None else known
        if known is None:
            words.append(f"{PREFIX}{declaration.PRE_STOP}: at least {duration.written(int(before))}")
    text = f"took {took:.2f} s after SIGTERM: declare {' and '.join(words)}"
    if seen.pre_stop and not seen.pre_stop.ended:
        return text
    return f"{text} (the smallest terminationGracePeriodSeconds that covers it: {covering(before + task)})"

"""Settings of a command: a dataclass of rows gives flags, environment variables, defaults and the docs."""

from collections.abc import Callable
from dataclasses import Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

PREFIX: Final = "DRAINPROOF_"
FILE: Final = click.Path(dir_okay=False, path_type=Path)
LOG_LEVEL: Final = click.Choice(["debug", "info", "warning", "error"])

Command = TypeVar("Command", bound=Callable[..., Any])


def row(kind: "click.ParamType[Any]", help: str, unset: str = "") -> dict[str, Any]:
    """A row of a table; `unset` says what holds where nothing is given and there is no plain default."""
    return {"kind": kind, "help": help, "unset": unset}


def flag(setting: "Field[Any]") -> str:
    """The flag of a setting."""
    return "--" + setting.name.replace("_", "-")


def variable(setting: "Field[Any]") -> str:
    """The environment variable of a setting."""
    return PREFIX + setting.name.upper()


def given_to(command: Command, settings: type) -> Command:
    """Gives a click command every setting as an option; a flag counts before its variable.

    An error in a value names both.
    """
    for setting in reversed(fields(settings)):
        told = setting.metadata
        command = click.option(
            flag(setting),
            setting.name,
            envvar=variable(setting),
            show_envvar=True,
            default=setting.default,
            show_default=told["unset"] or (setting.default is not None and _shown(setting.default)),
            is_flag=told["kind"] is click.BOOL,
            type=told["kind"],
            help=told["help"],
        )(command)
    return command


def table(settings: type) -> str:
    """The settings as a Markdown table."""
    lines = ["| Flag | Variable | Default | What it is |", "|---|---|---|---|"]
    for setting in fields(settings):
        told = setting.metadata
        default = told["unset"] or ("none" if setting.default is None else f"`{written(setting.default)}`")
        lines.append(f"| `{flag(setting)}` | `{variable(setting)}` | {default} | {told['help']} |")
    return "\n".join(lines) + "\n"


def written(value: Any) -> str:
    """A value as one would write it in a flag."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.total_seconds() / 3600:g}h"
    return ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _shown(default: Any) -> str | bool:
    """What click is told of a default: to show it itself where it writes it as we do."""
    return True if type(default) in (str, int, bool) else written(default)

"""How the commands behave as a group: loaded when they are called, and quiet when they are cut short."""

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import click

# Commands that most calls do without, so that `check` does not wait for what they load.
_LATER: Final = {
    "controller": "webhook.controller.run",
    "explain": "webhook.explaining",
    "policy": "webhook.policies",
    "serve": "webhook.serve",
    "uninstall": "webhook.uninstall.run",
}


class Commands(click.Group):
    """A group that loads a command's module when it is called, and ends quietly when it is cut short."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LATER:
            found: click.Command = getattr(importlib.import_module(_LATER[cmd_name]), cmd_name)
            return found
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:  # whoever read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(141)


def refuse(problems: Iterable[str], code: int = 2) -> NoReturn:
    """Ends a command with `code`, and every problem on a line of its own on stderr."""
    click.echo("\n".join(f"Error: {problem}" for problem in problems), err=True)
    sys.exit(code)

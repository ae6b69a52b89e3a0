"""The table of settings: flags, variables, defaults and the page."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from webhook.flags import flag, variable
from webhook.settings import Settings, options, table


def read(*arguments: str, **environment: str) -> tuple[Result, dict[str, Any]]:
    seen: dict[str, Any] = {}

    @click.command()
    @options
    def command(**given: Any) -> None:
        seen.update(asdict(Settings(**given)))

    return CliRunner().invoke(command, arguments, env=environment), seen


def test_without_anything_given_the_defaults_hold() -> None:
    result, seen = read()
    assert result.exit_code == 0
    assert seen == asdict(Settings())
    assert Settings().keep_alive_seconds > 90


def test_every_setting_is_taken_from_its_variable_and_the_flag_counts_before_it() -> None:
    _, seen = read("--port", "1", DRAINPROOF_PORT="2", DRAINPROOF_DEV="true", DRAINPROOF_POLICY="/p.yaml")
    assert (seen["port"], seen["dev"], seen["policy"]) == (1, True, Path("/p.yaml"))


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert read(DRAINPROOF_PORT="", DRAINPROOF_POLICY="")[1] == asdict(Settings())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "x"),
        ("port", "65536"),
        ("drain_seconds", "-1"),
        ("keep_alive_seconds", "0"),
        ("reload_seconds", "0"),
        ("log_level", "loud"),
        ("dev", "perhaps"),
    ],
)
def test_a_bad_value_names_the_flag_and_the_variable(name: str, value: str) -> None:
    setting = next(setting for setting in fields(Settings) if setting.name == name)
    for result in [
        read(**{variable(setting): value})[0],
        *([read(flag(setting), value)[0]] if name != "dev" else []),
    ]:
        assert result.exit_code == 2
        assert flag(setting) in result.output
        assert variable(setting) in result.output


def test_the_help_names_every_flag_with_its_variable() -> None:
    text = " ".join(read("--help")[0].output.split())
    for setting in fields(Settings):
        assert flag(setting) in text
        assert variable(setting) in text.replace(" ", "")


def test_the_table_has_a_line_for_every_setting_and_no_cell_is_empty() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(fields(Settings))
    for line in lines:
        assert [cell.strip() for cell in line.split("|")].count("") == 2


def test_the_address_depends_on_dev_unless_it_is_given() -> None:
    assert Settings().address == "0.0.0.0"
    assert Settings(dev=True).address == "127.0.0.1"
    assert Settings(dev=True, host="::").address == "::"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(), "give --certificate and --key"),
        (Settings(certificate=Path("x")), "give --certificate and --key"),
        (Settings(dev=True, certificate=Path("x"), key=Path("y")), "leave out --certificate and --key"),
    ],
)
def test_a_certificate_comes_from_files_or_from_dev_but_not_from_both(settings: Settings, text: str) -> None:
    assert text in "\n".join(settings.problems())


def test_settings_that_go_together_have_no_problem() -> None:
    assert not [*Settings(dev=True).problems(), *Settings(certificate=Path("x"), key=Path("y")).problems()]

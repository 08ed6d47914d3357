"""README's table is that of `--help`, docs/watching.md names keys that exist."""

from __future__ import annotations

import re

import click

from rocm_tui.cli.entry import COMMANDS, GROUPS, rocm_tui
from rocm_tui.tui.screens.help import key_groups
from tests.support.places import ROOT

TEXT = (ROOT / "README.md").read_text()
WATCHING = (ROOT / "docs" / "watching.md").read_text()


def test_the_table_of_commands_is_that_of_the_help() -> None:
    table = TEXT.partition("## Commands")[2].partition("\n\n")[2].partition("\n\n")[0]
    expected = [
        f"| {'' if number else title} | `{name}` | {command.help} |".replace("|  |", "| |")
        for title, commands in GROUPS.items()
        for number, (name, command) in enumerate(commands.items())
    ]
    assert table.splitlines()[2:] == expected


def test_every_option_exists() -> None:
    context = click.Context(rocm_tui)
    commands = [rocm_tui, *(rocm_tui.get_command(context, name) for name in COMMANDS)]
    known = {
        option
        for command in commands
        if command is not None
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", TEXT)) - known == set()


def test_every_key_exists() -> None:
    (table,) = re.findall(r"\| places \|.*?\n\n", WATCHING, re.DOTALL)
    named = set(re.findall(r"`([A-Za-z0-9/]|space|ctrl\+.)`", table))
    written = {key for group in key_groups() for e in group.entries for key in e.name.split()}
    assert len(named) > 20 and named <= written


def test_no_advice_names_a_package_that_is_not_published() -> None:
    """The project is installed from its folder; only other packages come from an index."""
    folders = (ROOT / name for name in ("rocm_tui", "backend", "docs"))
    found = (path for folder in folders for path in folder.rglob("*"))
    files = [path for path in found if path.suffix in (".py", ".md")]
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")]
    advice = re.compile(r"(pipx?|uv tool|uv pip) install(?: -\S+)* ['\"]?rocm-tui|uvx rocm-tui")
    assert [str(path) for path in files if advice.search(path.read_text())] == []

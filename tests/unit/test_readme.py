"""README has every command, docs/watching.md names keys that exist."""

from __future__ import annotations

import re

import click

from rocm_tui.cli.entry import COMMANDS, rocm_tui
from rocm_tui.tui.screens.help import key_groups
from tests.support.places import ROOT

TEXT = (ROOT / "README.md").read_text()
WATCHING = (ROOT / "docs" / "watching.md").read_text()


def test_every_command_is_there_and_every_option_exists() -> None:
    context = click.Context(rocm_tui)
    commands = [rocm_tui, *(rocm_tui.get_command(context, name) for name in COMMANDS)]
    known = {
        option
        for command in commands
        if command is not None
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert [name for name in COMMANDS if not re.search(rf"`(rocm-tui )?{name}\b", TEXT)] == []
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", TEXT)) - known == set()


def test_every_key_exists() -> None:
    (table,) = re.findall(r"\| move \|.*?\n\n", WATCHING, re.DOTALL)
    named = set(re.findall(r"`([A-Za-z/]|space|ctrl\+.)`", table))
    written = {key for group in key_groups() for e in group.entries for key in e.name.split()}
    assert len(named) > 20 and named <= written


def test_no_advice_names_a_package_that_is_not_published() -> None:
    """The project is installed from its folder; only other packages come from an index."""
    folders = (ROOT / name for name in ("rocm_tui", "backend", "docs"))
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md")
    ]
    advice = re.compile(r"pipx? install(?: -\S+)* ['\"]?rocm-tui")
    assert [str(path) for path in files if advice.search(path.read_text())] == []

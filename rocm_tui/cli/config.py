"""`rocm-tui config`: where the settings are, which are in force, what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from backend.counted import counted
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.config import writing
from rocm_tui.config.memory import trouble_of
from rocm_tui.config.places import config_path, state_path
from rocm_tui.config.reading import Mistake, Settings, settings_now
from rocm_tui.config.settings import settings
from rocm_tui.tui import appearance, keymap

Row = tuple[str, Any, str]
"""A setting's name, its value, and where that is from."""


@click.command()
@click.option("--write", is_flag=True, help="Write a settings file that explains every setting.")
@click.option("--check", is_flag=True, help="Exit with 1 if a setting in the file is not used.")
@click.option(
    "--yes", is_flag=True, help="With --write: replace an existing file, and keep a copy of it."
)
@common.json_option
def config_command(**given: Any) -> int:
    """Print the settings in force, and where each is set."""
    args = CommandArguments(**given)
    common.require_at_most_one(write=args.write, check=args.check)
    if args.write:
        return _write(args)
    now = settings_now()
    keys, wrong = keymap.mistakes(now)
    mistakes = [*now.mistakes, *wrong, *appearance.mistakes(now)]
    rows = list(_rows(now, keys))
    if args.json:
        say.out_json(_json(now, rows, mistakes))
    else:
        for line in filter(None, (*map(str, mistakes), trouble_of(state_path()))):
            say.err(line)
        if args.check:
            count = len([row for row in rows if row[2] != "default"])
            there = counted(count, "setting")
            say.out(f"{now.path}: {there if now.there else 'there is none'}{_bad(mistakes)}")
        else:
            _print(now, rows)
    return ExitCode.of(not (args.check and mistakes))


def _bad(mistakes: list[Mistake]) -> str:
    return f", {len(mistakes)} not used" if mistakes else ""


def _write(args: CommandArguments) -> int:
    keys = {name: (one.key, str(one.tooltip)) for name, one in keymap.bindings().items()}
    path = config_path()
    copy = writing.write(path, writing.example(keys), replace=args.yes)
    say.out(f"wrote {path}" + (f"; the one that was there is {copy}" if copy else ""))
    return ExitCode.YES


def _rows(now: Settings, keys: dict[str, str]) -> Iterator[Row]:
    for one in settings():
        value = getattr(getattr(now.config, one.section), one.name)
        yield one.full_name, value, _origin(now, one.full_name)
    for name, binding in keymap.bindings().items():
        given = keys.get(name)
        origin = "default" if given is None else _origin(now, f"keys.{name}")
        yield f"keys.{name}", binding.key if given is None else given, origin


def _origin(now: Settings, name: str) -> str:
    if name not in now.lines:
        return "default"
    line = now.lines[name]
    return "the file" if line is None else f"line {line}"


def _print(now: Settings, rows: list[Row]) -> None:
    say.out(f"settings  {now.path}{'' if now.there else '  (none; --write makes one)'}")
    say.out(f"memory    {state_path()}")
    say.out()
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in (("SETTING", "VALUE", "FROM"), *rows):
        shown = value if origin == "FROM" else writing.toml(value)
        say.out(f"{name:<{width}}  {shown:<20}  {origin}")


def _json(now: Settings, rows: list[Row], mistakes: list[Mistake]) -> dict[str, Any]:
    return {
        "path": str(now.path),
        "there": now.there,
        "memory": str(state_path()),
        "memory_problem": trouble_of(state_path()) or None,
        "settings": {name: {"value": value, "from": origin} for name, value, origin in rows},
        "mistakes": [{"line": one.line, "what": one.what} for one in mistakes],
    }

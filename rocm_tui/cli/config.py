"""`rocm-tui config`: print the settings in force, check them, or write a settings file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import tomlkit
from msgspec import field

from backend.counted import counted
from backend.disk import safe
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.config.memory import trouble_of
from rocm_tui.config.places import config_path, state_path
from rocm_tui.config.settings import (
    CAUTIOUS,
    SECTIONS,
    Mistake,
    Settings,
    Value,
    settings,
    settings_now,
)
from rocm_tui.errors import RocmTuiError
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.tui import appearance, keymap

Row = tuple[str, Any, str]
"""A setting's name, its value, and where that is from."""


@click.command()
@common.flag("--write", "Write a settings file that explains every setting.")
@common.flag("--check", "Exit with 1 if a setting in the file is not used.")
@common.flag("--yes", "With --write, replace an existing file, and keep a copy.")
@common.json_option
def config_command(write: bool, check: bool, yes: bool, json: bool) -> int:
    """Print the settings in force, and where each is set.

    Example: rocm-tui config --write
    """
    common.require_at_most_one(write=write, check=check)
    common.require_at_most_one(write=write, json=json)
    if write:
        return _write(replace=yes)
    now = settings_now()
    keys, wrong = keymap.mistakes(now)
    mistakes = [*now.mistakes, *wrong, *appearance.mistakes(now)]
    rows = list(_rows(now, keys))
    if json:
        say.out_json(ConfigJson.of(now, rows, mistakes))
    else:
        say.err(*filter(None, (*map(str, mistakes), trouble_of(state_path()))))
        if check:
            count = len([row for row in rows if row[2] != "default"])
            there = counted(count, "setting")
            say.out(f"{now.path}: {there if now.there else 'there is none'}{_bad(mistakes)}")
        else:
            _print(now, rows)
    return ExitCode.of(not (check and mistakes))


def _bad(mistakes: list[Mistake]) -> str:
    return f", {len(mistakes)} not used" if mistakes else ""


def _write(*, replace: bool) -> int:
    keys = {
        name: (binding.key, str(binding.tooltip)) for name, binding in keymap.bindings().items()
    }
    path = config_path()
    copy = write_settings(path, example_settings(keys), replace=replace)
    say.out(f"wrote {path}" + (f"; the one that was there is {copy}" if copy else ""))
    return ExitCode.YES


def _rows(now: Settings, keys: dict[str, str]) -> Iterator[Row]:
    for setting in settings():
        value = getattr(getattr(now.config, setting.section), setting.name)
        yield setting.full_name, value, _origin(now, setting.full_name)
    for name, binding in keymap.bindings().items():
        given = keys.get(name)
        origin = "default" if given is None else _origin(now, f"keys.{name}")
        yield f"keys.{name}", binding.key if given is None else given, origin


def _origin(now: Settings, name: str) -> str:
    if name == "watch.read_only" and now.config.watch is CAUTIOUS.watch:
        return "a mistake"
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
        shown = value if origin == "FROM" else to_toml(value)
        say.out(f"{name:<{width}}  {shown:<20}  {origin}")


class SettingJson(JsonObject):
    value: Any
    origin: str = field(name="from")


class MistakeJson(JsonObject):
    line: int | None
    what: str


class ConfigJson(Document, tag="rocm-tui/config/1"):
    """The settings in force, where each is set, and what is wrong in the file."""

    path: str
    there: bool
    memory: str
    memory_problem: str | None
    settings: dict[str, SettingJson]
    mistakes: list[MistakeJson]

    @classmethod
    def of(cls, now: Settings, rows: list[Row], mistakes: list[Mistake]) -> ConfigJson:
        return cls(
            path=str(now.path),
            there=now.there,
            memory=str(state_path()),
            memory_problem=trouble_of(state_path()) or None,
            settings={
                name: SettingJson(value=value, origin=origin) for name, value, origin in rows
            },
            mistakes=[fill(MistakeJson, mistake) for mistake in mistakes],
        )


class ConfigThere(RocmTuiError):
    """A person's file would be replaced."""


def to_toml(value: Value) -> str:
    """Return a value as TOML."""
    return tomlkit.item(value).as_string()


def example_settings(keys: Mapping[str, tuple[str, str]]) -> str:
    """The file. `keys` are the default of each key and what it does, by id."""
    lines = [
        "# Settings of rocm-tui. A line that is commented out shows the default.",
        "# `rocm-tui config` prints the settings in force; --check lists mistakes in this file.",
    ]
    for section, about in SECTIONS.items():
        lines += ["", f"# {about}", f"[{section}]"]
        if section == "keys":
            lines += _aligned(
                (f'"{name}"', to_toml(key), does) for name, (key, does) in keys.items()
            )
        else:
            lines += _aligned(
                (setting.name, to_toml(setting.default), setting.description)
                for setting in settings()
                if setting.section == section
            )
    return "\n".join(lines) + "\n"


def _aligned(rows: Iterator[tuple[str, str, str]]) -> list[str]:
    texts = [(f"# {name} = {value}", about) for name, value, about in rows]
    width = min(44, max(len(text) for text, _ in texts))
    return [f"{text:<{width}}  # {about}" for text, about in texts]


def write_settings(path: Path, text: str, *, replace: bool) -> Path | None:
    """Write the file; the copy of the one that was there, if it was.

    Raises ConfigThere where there is one that is not to be replaced, NotWritable, UnsafePath, Busy.
    """
    folder = path.parent
    safe.make_folder(folder, folder)
    with safe.locked(folder, path, locks=folder):
        safe.check_file(folder, path)
        if not path.exists():
            safe.write_atomic(path, text.encode())
            return None
        if not replace:
            raise ConfigThere(f"{path} is there; --yes writes it anew and keeps a copy")
        copy = _copy_of(path)
        safe.write_atomic(copy, safe.read_bytes(path))
        safe.write_atomic(path, text.encode())
        return copy


def _copy_of(path: Path) -> Path:
    """The first free of `config.toml.1`, `.2`, …"""
    at = 1
    while (copy := path.with_name(f"{path.name}.{at}")).exists():
        at += 1
    return copy

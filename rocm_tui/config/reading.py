"""Read `config.toml` into `Config`: each mistake is one line, and the rest of the file holds."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from backend.disk import safe
from backend.errors import CacheUnreadable
from rocm_tui import meant
from rocm_tui.config.places import config_path
from rocm_tui.config.settings import SECTIONS, Config, Value, settings

_MOST = 1 << 20
"""Bytes. A longer file is not read."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in the file that is not used; `line` is None where it cannot be told."""

    path: Path
    line: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f':{self.line}'}: {self.what}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says, and where: `lines` are those of the settings that it gives, by name
    (`theme.name`, `keys.watch.pin`)."""

    path: Path
    config: Config
    there: bool = False
    mistakes: tuple[Mistake, ...] = ()
    lines: Mapping[str, int | None] = field(default_factory=dict)

    def mistake(self, name: str, what: str) -> Mistake:
        """What is wrong with a setting that it gives."""
        return Mistake(self.path, self.lines.get(name), what)


def settings_now() -> Settings:
    """The settings of this process: the file is read when they are first asked for."""
    return _read_once(config_path(), "ROCM_TUI_CONFIG" in os.environ)


def config() -> Config:
    """The same, without where they are from."""
    return settings_now().config


@lru_cache(maxsize=4)
def _read_once(path: Path, named: bool) -> Settings:
    return read_settings(path, named)


def read_settings(path: Path, named: bool = False) -> Settings:
    """Never raises: a file that cannot be used is a mistake, and the defaults hold. There need be
    none, but where a person `named` it."""
    try:
        data = safe.read_bytes(path, _MOST)
    except CacheUnreadable as error:
        none = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
        if none and not named:
            return Settings(path, Config())
        why = "there is no such file" if none else str(error)
        return Settings(path, Config(), not none, (Mistake(path, None, why),))
    return parse(path, data)


def parse(path: Path, data: bytes) -> Settings:
    """Return what the file at `path` with this content says."""
    import tomlkit  # most people have no such file, and their first screen does without
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        text = data.decode()
        document = tomlkit.parse(text).unwrap()
    except (ValueError, TOMLKitError) as error:
        line = error.line if isinstance(error, ParseError) else None
        what = str(error).partition(" at line ")[0].rstrip(".")
        return Settings(path, Config(), True, (Mistake(path, line, f"not valid TOML: {what}"),))
    reader = _Reader(path, text)
    config = reader.config(document)
    return Settings(path, config, True, tuple(reader.mistakes), reader.lines)


class _Reader:
    """Converts a document setting by setting, so that a mistake costs one setting only."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []
        self.lines: dict[str, int | None] = {}
        self._line_numbers = dict(_line_numbers(text))

    def config(self, document: Mapping[str, Any]) -> Config:
        sections: dict[str, Any] = {}
        for section, table in document.items():
            if section not in SECTIONS:
                self._report(section, f"no section {section!r}{nearest(section, SECTIONS)}")
            elif not isinstance(table, dict):
                self._report(section, f"{section!r} is a section: write [{section}]")
            elif section == "keys":
                sections["keys"] = self._keys(table)
            else:
                kind = type(getattr(Config(), section))
                sections[section] = kind(**self._section(section, table))
        return Config(**sections)

    def _section(self, section: str, table: Mapping[str, Any]) -> dict[str, Value]:
        valid = {one.name: one for one in settings() if one.section == section}
        values: dict[str, Value] = {}
        for name, value in table.items():
            full = f"{section}.{name}"
            if name not in valid:
                self._report(full, f"no setting {name!r} in [{section}]{nearest(name, valid)}")
                continue
            if section == "colours" and type(value) is int:
                value = str(value)  # a number of the 256 colours
            try:
                values[name] = msgspec.convert(value, valid[name].type)
            except msgspec.ValidationError as error:
                choices = valid[name].choices
                near = nearest(str(value), choices) if choices else ""
                self._report(full, f"{full}: {error}{near}")
            else:
                self.lines[full] = self._line_numbers.get(full)
        return values

    def _keys(self, table: Mapping[str, Any]) -> dict[str, str]:
        """Return the keys by id. The screens, which know the ids, check them later."""
        keys: dict[str, str] = {}
        for name, value in _flat(table):
            full = f"keys.{name}"
            if isinstance(value, str) and value.strip():
                keys[name] = value
                self.lines[full] = self._line_numbers.get(full)
            else:
                self._report(full, f"{name}: a key is a text such as 'p' or 'ctrl+x,f5'")
        return keys

    def _report(self, name: str, what: str) -> None:
        self.mistakes.append(Mistake(self.path, self._line_numbers.get(name), what))


def nearest(word: str, known: Collection[str]) -> str:
    """`: did you mean X?`, or all that there are where none is near."""
    near = meant.nearest(word, known)
    if near is not None:
        return f": did you mean {near!r}?"
    return f"; there are {', '.join(known)}" if len(known) < 12 else ""


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """`watch.pin = "p"` is a table in a table to TOML, `"watch.pin" = "p"` is none."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _line_numbers(text: str) -> Iterator[tuple[str, int]]:
    """The line of each section and setting, by name, as they are commonly written."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        head = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
        if head:
            section = _unquoted(head[1])
            yield section, number
        elif found := re.match(r"""\s*([\w.\-"' ]+?)\s*=""", line):
            name = _unquoted(found[1])
            yield (f"{section}.{name}" if section else name), number


def _unquoted(name: str) -> str:
    return re.sub(r"""["'\s]""", "", name)

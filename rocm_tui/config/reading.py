"""`config.toml` to `Config`: what is wrong in it is told in a line, and the rest holds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from backend.disk import safe
from backend.errors import CacheUnreadable
from rocm_tui import meant
from rocm_tui.config.places import config_path
from rocm_tui.config.settings import SECTIONS, Config, Value, section_of

_MOST = 1 << 20
"""Bytes. A longer file is none of settings."""


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
    """What the file at `path` with this content says."""
    try:
        text = data.decode()
        document = _loads(text)
    except ValueError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found[1]) if found else None
        what = re.sub(r" \(at [^)]*\)$", "", str(error))
        return Settings(path, Config(), True, (Mistake(path, line, f"no TOML: {what}"),))
    reading = _Reading(path, text)
    made = reading.config(document)
    return Settings(path, made, True, tuple(reading.mistakes), reading.lines)


def _loads(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    if sys.version_info >= (3, 11):
        import tomllib  # where there is a file, and only there
    else:
        import tomli as tomllib
    document: dict[str, Any] = tomllib.loads(text)
    return document


class _Reading:
    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []
        self.lines: dict[str, int | None] = {}
        self._places = dict(_places(text))

    def config(self, document: Mapping[str, Any]) -> Config:
        made = Config()
        for section, table in document.items():
            if section not in SECTIONS:
                self._wrong(section, f"no section {section!r}{nearest(section, SECTIONS)}")
            elif not isinstance(table, dict):
                self._wrong(section, f"{section!r} is a section: write [{section}]")
            elif section == "keys":
                made = replace(made, keys=self._keys(table))
            else:
                made = replace(made, **{section: self._section(made, section, table)})
        return made

    def _section(self, made: Config, section: str, table: Mapping[str, Any]) -> Any:
        defaults = section_of(made, section)
        known = {one.name: one for one in fields(defaults)}
        given: dict[str, Value] = {}
        for name, value in table.items():
            full = f"{section}.{name}"
            if name not in known:
                self._wrong(full, f"no setting {name!r} in [{section}]{nearest(name, known)}")
                continue
            try:
                given[name] = checked(known[name], value)
            except ValueError as error:
                self._wrong(full, f"{full}: {error}")
            else:
                self.lines[full] = self._places.get(full)
        return replace(defaults, **given)

    def _keys(self, table: Mapping[str, Any]) -> dict[str, str]:
        """Which ids and keys there are is known by the screens, which look later."""
        found: dict[str, str] = {}
        for name, value in _flat(table):
            full = f"keys.{name}"
            if isinstance(value, str) and value.strip():
                found[name] = value
                self.lines[full] = self._places.get(full)
            else:
                self._wrong(full, f"{name}: a key is a text such as 'p' or 'ctrl+x,f5'")
        return found

    def _wrong(self, name: str, what: str) -> None:
        self.mistakes.append(Mistake(self.path, self._places.get(name), what))


def checked(rule: Field[Any], value: object) -> Value:
    """The value as its setting wants it. Raises ValueError with what it may be."""
    kind, about = type(rule.default), rule.metadata
    if kind is tuple:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        raise ValueError("a list of texts, as in ['from', 'age']")
    if kind is str and rule.name != "name" and type(value) is int:
        value = str(value)  # a number of the 256 colours
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{_KINDS[kind]}, not {value!r}")
    if about["choices"] and value not in about["choices"]:
        raise ValueError(f"no {value!r}{nearest(str(value), about['choices'])}")
    low, high = about["least"], about["most"]
    if low is not None and not low <= value <= high:
        raise ValueError(f"from {low:g} to {high:g}, not {value}")
    return cast(Value, value)


_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
}


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


def _places(text: str) -> Iterator[tuple[str, int]]:
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

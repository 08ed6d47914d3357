"""Every setting, once: its section, name, type, default, range and description; and their file.

Reading, `rocm-tui config`, the file that it writes and docs/config.md are derived from these types.
Each mistake in `config.toml` is one line, and the rest of the file holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from backend.disk import safe
from backend.errors import CacheUnreadable
from rocm_tui import meant
from rocm_tui.config.places import config_path

Value = bool | int | float | str | tuple[str, ...]

ThemeName = Literal[
    "auto",
    "rocm-dark",
    "rocm-light",
    "rocm-blue-orange",
    "rocm-blue-orange-light",
    "rocm-16",
]
Seconds = Annotated[float, Meta(ge=1, le=1_000_000)]


class Theme(msgspec.Struct, frozen=True):
    name: Annotated[ThemeName, Meta(description="the colours; auto is what fits the terminal")] = (
        "auto"
    )


class Columns(msgspec.Struct, frozen=True):
    hide: Annotated[
        tuple[str, ...],
        Meta(description="columns of Watch that are never shown, by their titles: ['from', 'age']"),
    ] = ()


class Colours(msgspec.Struct, frozen=True):
    """Empty is the theme's own. `#rrggbb`, a name such as `cyan`, or a number of the 256."""

    text: Annotated[str, Meta(description="text")] = ""
    background: Annotated[str, Meta(description="the background of text")] = ""
    dim: Annotated[str, Meta(description="less important text")] = ""
    accent: Annotated[str, Meta(description="titles, the cursor's mark, the selection")] = ""
    good: Annotated[str, Meta(description="faster choices")] = ""
    warn: Annotated[str, Meta(description="warnings")] = ""
    bad: Annotated[str, Meta(description="slower or failed choices, errors")] = ""
    heading: Annotated[str, Meta(description="the heads of columns, the lines of keys")] = ""
    cursor: Annotated[str, Meta(description="the background of the line under the cursor")] = ""


class LimitSettings(msgspec.Struct, frozen=True):
    folder_depth: Annotated[
        int, Meta(ge=0, le=64, description="levels of folders read below one that is watched")
    ] = 6
    log_lines: Annotated[
        int, Meta(ge=10, le=100_000, description="lines of a worker's log in Jobs")
    ] = 200


class Watch(msgspec.Struct, frozen=True):
    read_only: Annotated[
        bool,
        Meta(description="start without writing files or running jobs; --no-read-only overrides"),
    ] = False


class Budgets(msgspec.Struct, frozen=True):
    measure: Annotated[
        Seconds,
        Meta(description="seconds to measure the choices of a tuning, without compiling"),
    ] = 30.0
    trial: Annotated[
        Seconds, Meta(description="seconds for a trial of choices in a graph, without compiling")
    ] = 30.0
    program: Annotated[
        Seconds, Meta(description="seconds for a trial of a whole program, trial -- CMD")
    ] = 600.0
    improve: Annotated[
        Seconds, Meta(description="seconds for a search in a graph, with compiling")
    ] = 600.0
    prove: Annotated[
        Seconds, Meta(description="seconds for each process of a proof, without compiling")
    ] = 10.0
    verify: Annotated[
        Seconds, Meta(description="seconds to verify a pin from the command line")
    ] = 300.0


class Run(msgspec.Struct, frozen=True):
    agree: Annotated[
        bool,
        Meta(description="the ranks of a job share their choices; --no-agree overrides"),
    ] = False
    agree_timeout: Annotated[
        Seconds, Meta(description="seconds that a rank waits for another's choice")
    ] = 180.0


class Config(msgspec.Struct, frozen=True):
    """The settings in force. `keys` are keys by the id of their action (`watch.pin`)."""

    theme: Theme = Theme()
    columns: Columns = Columns()
    colours: Colours = Colours()
    limits: LimitSettings = LimitSettings()
    watch: Watch = Watch()
    budgets: Budgets = Budgets()
    run: Run = Run()
    keys: dict[str, str] = {}


SECTIONS: dict[str, str] = {
    "theme": "Themes. With auto, a theme that is chosen in the palette (ctrl+p) is kept.",
    "columns": "The table of Watch.",
    "colours": "Single colours in place of the theme's: #rrggbb, a name, or a number of the 256.",
    "limits": "Limits on what is read and shown.",
    "watch": "How the screen starts.",
    "budgets": "How long a job may take, on the screen and where the command has no --budget.",
    "run": "Programs under rocm-tui run.",
    "keys": "A key for each action, or several keys with commas between them.",
}
"""The comment above each section of the file, in the file's order."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `type` is what msgspec converts a value to."""

    section: str
    name: str
    type: Any
    default: Value

    @property
    def full_name(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a setting that has a fixed set of them."""
        kind = get_args(self.type)[0]
        return get_args(kind) if get_origin(kind) is Literal else ()

    @property
    def description(self) -> str:
        """What the setting does and which values it takes."""
        metas = get_args(self.type)[1:]
        text: str = next(meta.description for meta in metas if meta.description)
        if self.choices:
            return f"{text}: {', '.join(self.choices)}"
        ranges = [f" ({meta.ge:,} to {meta.le:,})" for meta in metas if meta.ge is not None]
        return text + "".join(ranges)


def settings() -> Iterator[Setting]:
    """Yield all settings except the keys, whose ids the screens define."""
    defaults = Config()
    for section in SECTIONS:
        if section != "keys":
            for field in msgspec.structs.fields(getattr(defaults, section)):
                yield Setting(section, field.name, field.type, field.default)


_MOST = 128 << 10
"""Bytes. A longer file is not read: all settings are 10 KiB, and a MiB would take seconds."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in the file that is not used; `line` is None where it is unknown."""

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
    """The settings of this process: the file is read at the first use."""
    return _read_once(config_path(), bool(os.environ.get("ROCM_TUI_CONFIG")))


def config() -> Config:
    """The same, without where they are from."""
    return settings_now().config


@lru_cache(maxsize=4)
def _read_once(path: Path, named: bool) -> Settings:
    return read_settings(path, named)


def read_settings(path: Path, named: bool = False) -> Settings:
    """Never raises: a file that cannot be used is a mistake, and the defaults hold, read-only.
    There need be none, but where a person `named` it."""
    try:
        data = safe.read_bytes(path, _MOST)
    except CacheUnreadable as error:
        none = error.is_absent
        if none and not named:
            return Settings(path, Config())
        why = "there is no such file" if none else str(error)
        return Settings(path, CAUTIOUS, not none, (Mistake(path, None, why),))
    return parse(path, data)


def parse(path: Path, data: bytes) -> Settings:
    """Return what the file at `path` with this content says."""
    import tomlkit  # most people have no such file, and their first screen does without
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        text = data.decode()
        document = tomlkit.parse(text).unwrap()
    except (ValueError, RecursionError, TOMLKitError) as error:
        line = error.line if isinstance(error, ParseError) else None
        what = str(error).partition(" at line ")[0].rstrip(".")
        return Settings(path, CAUTIOUS, True, (Mistake(path, line, f"not valid TOML: {what}"),))
    reader = _Reader(path, text)
    config = reader.config(document)
    return Settings(path, config, True, tuple(reader.mistakes), reader.lines)


CAUTIOUS = Config(watch=Watch(read_only=True))
"""The settings in force where it cannot be read whether the person wants to be read-only."""


class _Reader:
    """Converts a document setting by setting, so that a mistake costs one setting only."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []
        self.lines: dict[str, int | None] = {}
        self._wrong: set[str] = set()
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
        if "watch" in self._wrong:
            sections["watch"] = CAUTIOUS.watch
        return Config(**sections)

    def _section(self, section: str, table: Mapping[str, Any]) -> dict[str, Value]:
        valid = {setting.name: setting for setting in settings() if setting.section == section}
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
        self._wrong.add(name.partition(".")[0])
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
        elif match := re.match(r"""\s*([\w.\-"' ]+?)\s*=""", line):
            name = _unquoted(match[1])
            yield (f"{section}.{name}" if section else name), number


def _unquoted(name: str) -> str:
    return re.sub(r"""["'\s]""", "", name)

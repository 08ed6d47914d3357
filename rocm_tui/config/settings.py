"""Every setting, once: its section, name, type, default, range and description.

Reading, `rocm-tui config`, the file that it writes and docs/config.md are derived from these types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

Value = bool | int | float | str | tuple[str, ...]

ThemeName = Literal[
    "auto",
    "rocm-dark",
    "rocm-light",
    "rocm-blue-orange",
    "rocm-blue-orange-light",
    "rocm-16",
]
THEMES: tuple[str, ...] = get_args(ThemeName)
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


class Limits(msgspec.Struct, frozen=True):
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
    limits: Limits = Limits()
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

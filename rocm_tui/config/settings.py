"""Every setting, once: its section, its name, what it is when nothing is said, what it means.

A setting is a field here. Reading, checking, `rocm-tui config`, the file that it writes and
docs/config.md are made of these fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, cast

from rocm_tui.config.defaults import FOLDER_DEPTH

Value = bool | int | float | str | tuple[str, ...]

THEMES = (
    "auto",
    "rocm-dark",
    "rocm-light",
    "rocm-blue-orange",
    "rocm-blue-orange-light",
    "rocm-16",
)


def setting(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A field with the sentence that explains it, and what it may be; numbers with both ends."""
    rule = {"about": about, "choices": choices, "least": least, "most": most}
    return field(default=default, metadata=rule)


@dataclass(frozen=True, slots=True)
class Theme:
    name: str = setting("auto", "the colours; auto is what fits the terminal", choices=THEMES)


@dataclass(frozen=True, slots=True)
class Columns:
    hide: tuple[str, ...] = setting(
        (), "columns of Watch that are never shown, by their titles: ['from', 'age']"
    )


@dataclass(frozen=True, slots=True)
class Colours:
    """Empty is the theme's own. `#rrggbb`, a name such as `cyan`, or a number of the 256."""

    text: str = setting("", "text")
    background: str = setting("", "what is behind it")
    dim: str = setting("", "what matters less")
    accent: str = setting("", "titles, the cursor's mark, what is chosen")
    good: str = setting("", "what is faster")
    warn: str = setting("", "what to look at")
    bad: str = setting("", "what is slower, failed or wrong")
    heading: str = setting("", "the heads of columns, the lines of keys")
    cursor: str = setting("", "behind the line under the cursor")


@dataclass(frozen=True, slots=True)
class Limits:
    folder_depth: int = setting(
        FOLDER_DEPTH, "levels of folders read below one that is watched", least=0, most=64
    )
    log_lines: int = setting(200, "lines of a worker's log in Jobs", least=10, most=100_000)


@dataclass(frozen=True, slots=True)
class Watch:
    read_only: bool = setting(
        False, "start with nothing written and no job; --no-read-only does without for once"
    )


def _seconds(default: float, about: str) -> Any:
    return setting(default, f"seconds; {about}", least=1, most=1_000_000)


@dataclass(frozen=True, slots=True)
class Budgets:
    measure: float = _seconds(30.0, "of measuring the choices of a tuning, compiling not counted")
    trial: float = _seconds(30.0, "of a trial of choices in a graph, compiling not counted")
    program: float = _seconds(600.0, "of a trial of a whole program, trial -- CMD")
    improve: float = _seconds(600.0, "of a search in a graph, compiling counted")
    prove: float = _seconds(10.0, "of each process of a proof, compiling not counted")
    verify: float = _seconds(300.0, "of verifying a pin from the command line")


@dataclass(frozen=True, slots=True)
class Run:
    agree: bool = setting(
        False, "the ranks of a job take their choices from each other; --no-agree does without"
    )
    agree_timeout: float = _seconds(180.0, "that a rank waits for another's choice")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. `keys` are keys by the id of what they do (`watch.pin`)."""

    theme: Theme = field(default_factory=Theme)
    columns: Columns = field(default_factory=Columns)
    colours: Colours = field(default_factory=Colours)
    limits: Limits = field(default_factory=Limits)
    watch: Watch = field(default_factory=Watch)
    budgets: Budgets = field(default_factory=Budgets)
    run: Run = field(default_factory=Run)
    keys: Mapping[str, str] = field(default_factory=dict)


SECTIONS: dict[str, str] = {
    "theme": "How it looks. With auto, what is chosen in the palette (ctrl+p) is kept.",
    "columns": "The table of Watch.",
    "colours": "Single colours in place of the theme's: #rrggbb, a name, or a number of the 256.",
    "limits": "How much of a thing.",
    "watch": "How the screen starts.",
    "budgets": "How long a job may take, on the screen and where the command has no --budget.",
    "run": "Programs under rocm-tui run.",
    "keys": "A key, or several with commas between them, for each thing that a key does.",
}
"""What stands above each section of the file, in its order."""


def section_of(config: Config, name: str) -> Any:
    return getattr(config, name)


def default_of(one: Field[Any]) -> Value:
    """What a setting is when nothing is said."""
    return cast(Value, one.default)


def settings() -> Iterator[tuple[str, Field[Any]]]:
    """All settings with their section, but for the keys, whose names the screens know."""
    defaults = Config()
    for section in SECTIONS:
        if section != "keys":
            yield from ((section, one) for one in fields(section_of(defaults, section)))

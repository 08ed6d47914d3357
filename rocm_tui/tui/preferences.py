"""What the app takes of a person's settings and of its memory, once its first screen stands."""

from __future__ import annotations

from textual.theme import Theme

from rocm_tui.config.memory import Memory
from rocm_tui.config.places import name_of_theme
from rocm_tui.config.reading import Mistake, Settings, settings_now
from rocm_tui.config.settings import Colours
from rocm_tui.harmless import plain
from rocm_tui.tui.host import Host

_TOLD = 3
"""Mistakes that are told one by one."""


def chosen_theme(memory: Memory, colors: str) -> str:
    """The theme of the settings, else what was chosen the last time on such a terminal."""
    name = settings_now().config.theme.name
    return memory.recall(name_of_theme(colors), "") if name == "auto" else name


def begin(app: Host) -> None:
    """Take up the keys, say what is wrong in the file."""
    now = settings_now()
    keys, wrong = _keys(now)
    if keys:
        app.own_keys = keys
        app.set_keymap(keys)
    _tell(app, [*now.mistakes, *wrong, *_of_looks(now)])


def _keys(now: Settings) -> tuple[dict[str, str], list[Mistake]]:
    if not now.config.keys:
        return {}, []
    from rocm_tui.tui.keymap import mistakes  # all screens, for those with keys of their own

    return mistakes(now)


def _of_looks(now: Settings) -> list[Mistake]:
    if not now.there:
        return []
    from rocm_tui.tui.looks import mistakes  # the columns, for those who have a file

    return list(mistakes(now))


def own_colours(theme: Theme) -> Theme:
    """The theme with the colours of the settings."""
    colours = settings_now().config.colours
    if colours == Colours():
        return theme
    from rocm_tui.tui.looks import recoloured

    return recoloured(theme, colours)


def _tell(app: Host, mistakes: list[Mistake]) -> None:
    for mistake in mistakes[:_TOLD]:
        app.notify(plain(str(mistake)), severity="warning", markup=False, timeout=15)
    if len(mistakes) > _TOLD:
        more = f"{len(mistakes) - _TOLD} more: rocm-tui config --check"
        app.notify(more, severity="warning", markup=False, timeout=15)

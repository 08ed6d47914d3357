"""A key of a screen: what it runs and the sentence that explains it, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from textual.binding import Binding
from textual.screen import Screen

_WRITTEN = {
    "slash": "/",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "equals_sign": "=",
    "escape": "esc",
    "down": "↓",
    "up": "↑",
    "right": "→",
    "left": "←",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "f1": "F1",
}


def key(keys: str, action: str, id: str, about: str, *, priority: bool = False) -> Binding:
    """Keys, with commas between them, that run `action`. By `id` a person may choose others;
    `about` is what the help says of them."""
    return Binding(keys, action, about, show=False, priority=priority, id=id, tooltip=about)


def written(keys: str) -> str:
    """Keys as a person reads them: `j ↓`."""
    return " ".join(_WRITTEN.get(name.strip(), name.strip()) for name in keys.split(","))


def own_key(screen: Screen[Any], action: str, own: Mapping[str, str]) -> str | None:
    """The first key that a person gave what `action` of this screen does; None without."""
    ids = _ids(type(screen), type(screen.app))
    given = own.get(ids.get(action.removeprefix("screen."), ""))
    return None if given is None else written(given.partition(",")[0])


@lru_cache(maxsize=32)
def _ids(screen: type, app: type) -> dict[str, str]:
    """The ids of keys by what they run."""
    found: dict[str, str] = {}
    for kind, room in ((screen, ""), (app, "app.")):
        for base in kind.__mro__:
            for one in vars(base).get("BINDINGS", ()):
                if isinstance(one, Binding) and one.id:
                    action = one.action.removeprefix("screen.").removeprefix("app.")
                    place = "app." if one.action.startswith("app.") else room
                    found.setdefault(place + action, one.id)
    return found

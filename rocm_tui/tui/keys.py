"""A key of a screen: what it runs and the sentence that explains it, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from textual.binding import Binding, BindingType
from textual.screen import Screen

READ_ONLY = "Read-only (ctrl+r): nothing is written and no work is started."

Key = tuple[str, str, str]
"""Key as it is written, its effect in one or two words, the action it runs."""

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


def key(
    keys: str,
    action: str,
    id: str,
    about: str,
    *,
    footer: str = "",
    palette: str = "",
    priority: bool = False,
) -> Binding:
    """Keys, with commas between them, that run `action`. By `id` a person may choose others;
    `about` is what the help says of them, `footer` their word in the line of keys and `palette` the
    name in the command palette, if they are there."""
    name = footer or palette or about
    return Binding(keys, action, name, bool(footer), priority=priority, tooltip=about, id=id)


def footer_keys(bindings: Iterable[BindingType]) -> list[Key]:
    """Return the keys that the line of keys shows."""
    return [
        (written(binding.key), binding.description, binding.action)
        for binding in bindings
        if isinstance(binding, Binding) and binding.show
    ]


def palette_entries(bindings: Iterable[BindingType]) -> Iterator[tuple[str, str, str]]:
    """The name, a hint and the action of those that have a name in the command palette."""
    for binding in bindings:
        if isinstance(binding, Binding) and binding.description != binding.tooltip:
            hint = f"Key {written(binding.key)}; {binding.tooltip}"
            yield binding.description, hint, f"app.{binding.action}"


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
    ids: dict[str, str] = {}
    for kind, room in ((screen, ""), (app, "app.")):
        for base in kind.__mro__:
            for binding in vars(base).get("BINDINGS", ()):
                if isinstance(binding, Binding) and binding.id:
                    action = binding.action.removeprefix("screen.").removeprefix("app.")
                    place = "app." if binding.action.startswith("app.") else room
                    ids.setdefault(place + action, binding.id)
    return ids

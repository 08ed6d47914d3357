"""A key of a screen: what it runs and the sentence that explains it, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from textual.binding import Binding, BindingType
from textual.screen import Screen

READ_ONLY = "Read-only (ctrl+r): nothing is written and no work is started."

Key = tuple[str, str, str]
"""The key as it is written, its effect in one or two words, and the action it runs."""

PLACES: tuple[Key, ...] = (
    ("1", "Watch", "app.open('watch')"),
    ("2", "Compare", "app.open('compare')"),
    ("3", "Pins", "app.open('pins')"),
    ("4", "Jobs", "app.open('jobs')"),
    ("5", "Report", "app.open('report')"),
)
"""The first level; each of these screens shows all of them with their keys in its title line."""

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
    """Return the binding of `keys`, separated by commas, to `action`. By `id` a person may choose
    others; `about` is the text in the help, `footer` the word in the line of keys and `palette` the
    name in the command palette, if the key is listed there."""
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
    """Yield name, hint and action of each binding that the command palette lists."""
    for binding in bindings:
        if isinstance(binding, Binding) and binding.description != binding.tooltip:
            hint = f"Key {written(binding.key)}; {binding.tooltip}"
            yield binding.description, hint, f"app.{binding.action}"


def written(keys: str) -> str:
    """Return keys as a person reads them: `j ↓`."""
    return " ".join(_WRITTEN.get(name.strip(), name.strip()) for name in keys.split(","))


def own_key(screen: Screen[Any], action: str, own: Mapping[str, str]) -> str | None:
    """Return the first key that the person gave to what `action` does on this screen, or None."""
    ids = _ids(type(screen), type(screen.app))
    given = own.get(ids.get(action.removeprefix("screen."), ""))
    return None if given is None else written(given.partition(",")[0])


@lru_cache(maxsize=32)
def _ids(screen: type, app: type) -> dict[str, str]:
    """Return the ids of keys by action."""
    ids: dict[str, str] = {}
    for kind, room in ((screen, ""), (app, "app.")):
        for base in kind.__mro__:
            for binding in vars(base).get("BINDINGS", ()):
                if isinstance(binding, Binding) and binding.id:
                    action = binding.action.removeprefix("screen.").removeprefix("app.")
                    place = "app." if binding.action.startswith("app.") else room
                    ids.setdefault(place + action, binding.id)
    return ids

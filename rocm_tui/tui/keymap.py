"""A person's own keys: the existing ids, and mistakes in a choice of keys.

This imports all screens, so it is loaded only for people with their own keys, and for the help.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from itertools import product

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from rocm_tui.config.settings import Mistake, Settings, nearest
from rocm_tui.tui.screens.help import KEYBOARDS

_EVERYWHERE = ("Lists", "Everywhere")
_APART = "A question"
"""The place above the screens, where none of their keys works."""


def bindings() -> dict[str, Binding]:
    """Return every key's binding by its id; the first one if several screens have that id."""
    by_id: dict[str, Binding] = {}
    for _, name, binding in _placed():
        by_id.setdefault(name, binding)
    return by_id


def mistakes(settings: Settings) -> tuple[dict[str, str], list[Mistake]]:
    """Return the keys of the settings that can be used, and what is wrong with the others."""
    defaults = bindings()
    usable: dict[str, str] = {}
    wrong: list[Mistake] = []
    for name, keys in settings.config.keys.items():
        full = f"keys.{name}"
        if name not in defaults:
            wrong.append(settings.mistake(full, f"no key {name!r}{nearest(name, defaults)}"))
        elif odd := [key for key in _split(keys) if not _is_key(key)]:
            why = f"{name}: no key is called {odd[0]!r}{nearest(odd[0].lower(), _names())}"
            wrong.append(settings.mistake(full, why))
        else:
            usable[name] = keys
    for first, second, key in list(_clashes(usable)):
        if usable.pop(first, None):
            what = f"{first} and {second} would both be {key!r}"
            wrong.append(settings.mistake(f"keys.{first}", what))
    return usable, wrong


def _clashes(keys: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield an id that the person gave a key, another id with that key there, and the key.

    Ids that share a key by default, such as one of a list and one of its screen, may keep it.
    """
    before = [(place, name, _split(binding.key)) for place, name, binding in _placed()]
    after = [(place, name, _split(keys.get(name, ",".join(k)))) for place, name, k in before]
    for (at, (place, name, mine)), (to, (other_place, other, theirs)) in product(
        enumerate(after), repeat=2
    ):
        if name == other or name not in keys or not _meet(place, other_place):
            continue
        shared = set(mine) & set(theirs)
        if shared and not set(before[at][2]) & set(before[to][2]):
            yield name, other, min(shared)


def _placed() -> Iterator[tuple[str, str, Binding]]:
    for place, given in KEYBOARDS:
        for binding in given:
            if isinstance(binding, Binding) and binding.id:
                yield place, binding.id, binding


def _meet(place: str, other: str) -> bool:
    if _APART in (place, other):
        return place == other
    return place == other or place in _EVERYWHERE or other in _EVERYWHERE


def _split(keys: str) -> tuple[str, ...]:
    """Split keys, by the names that Textual has for them: `/` is `slash`."""
    return tuple(_name_of(key.strip()) for key in keys.split(","))


def _name_of(key: str) -> str:
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def _is_key(key: str) -> bool:
    return (len(key) == 1 and key.isprintable()) or key in _names() or _is_modified(key)


def _is_modified(key: str) -> bool:
    plain = key
    for modifier in ("ctrl+", "alt+", "shift+"):
        plain = plain.removeprefix(modifier)
    return plain != key and (len(plain) == 1 or plain in _names())


def _names() -> Collection[str]:
    punctuation = {_name_of(chr(code)) for code in range(0x21, 0x7F)}
    return {key.value for key in Keys if not key.value.startswith("<")} | punctuation

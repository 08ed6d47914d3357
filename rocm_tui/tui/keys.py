"""A key of a screen: what it runs and the sentence that explains it, in one line."""

from __future__ import annotations

from textual.binding import Binding

_WRITTEN = {
    "slash": "/",
    "question_mark": "?",
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


def written(binding: Binding) -> str:
    """Its keys as a person reads them: `j ↓`."""
    return " ".join(_WRITTEN.get(name.strip(), name.strip()) for name in binding.key.split(","))

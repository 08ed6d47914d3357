"""Suggestions for mistyped words."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word`, or its beginning, is most like; None if none is near."""
    from difflib import get_close_matches  # only for mistakes

    beginning = len(word) if len(word) > 2 else None
    names = {text: name for name in known for text in (name[:beginning], name)}
    matches = get_close_matches(word, names, n=1)
    return names[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'watch'?)`, or nothing, to put behind the word in an error."""
    near = nearest(word, known)
    return "" if near is None else f" (did you mean {near!r}?)"

"""What a mistyped word was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

_NEAR = 0.6
"""How alike two words are from 0 to 1, at least: `whatch` and `watch` are 0.91."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is most like, or whose beginning is; None if none is near."""
    from difflib import SequenceMatcher  # for mistakes alone

    matcher = SequenceMatcher(b=word, autojunk=False)
    best, found = _NEAR, None
    for candidate in known:
        for text in {candidate, candidate[: len(word)]} if len(word) > 2 else {candidate}:
            matcher.set_seq1(text)
            alike = matcher.ratio()
            if alike > best or (alike == best and found is None):
                best, found = alike, candidate
    return found


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'watch'?)`, or nothing: what stands behind the word in an error."""
    near = nearest(word, known)
    return "" if near is None else f" (did you mean {near!r}?)"

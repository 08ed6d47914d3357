"""Which process wrote a line of a log, by the wrapper around what the line says.

Two processes have different wrappers, whatever launcher, container or logger made them. But some
words of a wrapper vary within a process, too: times, counters, line numbers, random ids. Times are
recognised by their form; every other word is taken to name the process until a table shows that it
does not: its lines go on, in order, under words that differ from those of its header.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Key = tuple[str, tuple[str, ...]]
"""A process: the shape of its wrapper, and the words that do not vary."""


_LONGEST_NAME = 80


def name_of(key: Key) -> str:
    """Return a process as its wrapper names it, for a person."""
    words = (word if word.endswith(_GLUE) else f"{word} " for word in key[1] if word)
    return "".join(words).strip()[:_LONGEST_NAME]


class Origin(NamedTuple):
    """A wrapper: its punctuation, its words, and the rank that it names."""

    shape: str = ""
    words: tuple[str, ...] = ()
    rank: int | None = None

    def akin(self, other: Origin) -> bool:
        """Whether one wrapper has all words of the other, in order: some loggers put their prefix
        on some lines alone, and a progress bar may stand before a header."""
        longer, shorter = self.words, other.words
        if len(longer) < len(shorter):
            longer, shorter = shorter, longer
        words = iter(longer)
        return all(word in words for word in shorter)

    def differing(self, other: Origin) -> frozenset[int] | None:
        """Return the places of the words that differ; None for wrappers of unlike shapes."""
        if self.shape != other.shape or len(self.words) != len(other.words):
            return None
        pairs = zip(self.words, other.words, strict=True)
        return frozenset(at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)


_MAX_WORDS = 256
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,:]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_DATE = r"(?:(?:19|20)\d\d([-/.])\d\d\1\d\d|\d\d/\d\d/(?:19|20)\d\d|(?:19|20)\d{6})"
_EPOCH = r"1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?"
_TIME = re.compile(
    rf"(?<![\w.:/@-])(?:{_DATE}(?:[T _-]{{1,2}}{_CLOCK})?|{_CLOCK}|{_EPOCH})(?![\w:/@-])"
)
_WORD = re.compile(r"\d+\.\d+(?![\w.])|\w+[.\-/@]*|[.\-/@]+")
"""`trainer-0` is two words: a counter may be glued to a name."""
_GLUE = (".", "-", "/", "@")
_NO_SHAPE = re.compile(r"""[\w.\-/@\s"',]+""")
_NOBODY = Origin()


class Origins:
    """Reads the wrappers of lines; most lines have one of a few, but for the time."""

    def __init__(self) -> None:
        self._recent: dict[str, Origin] = {}

    def of(self, wrapper: str) -> Origin:
        if not wrapper or wrapper.isspace():
            return _NOBODY
        bare = _TIME.sub(_SOME_TIME, wrapper)
        who = self._recent.get(bare)
        if who is None:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            words = tuple(_WORD.findall(bare)[:_MAX_WORDS])
            who = self._recent[bare] = Origin(_NO_SHAPE.sub("", bare), words, rank_of(bare))
        return who


_SOME_TIME = "·"
_MOST_RECENT = 256


_RANK = re.compile(r"(local|node|group|role)?(?:\b|_|-|mpi)rank[\W_]{0,4}(\d{1,6})", re.IGNORECASE)
_LAUNCHED = re.compile(
    r"\[[A-Za-z_]{1,40}(\d{1,6})\]:"  # torchrun
    r"|[\[@]\d{1,6},(\d{1,6})\]<std"  # mpirun
    r"|^ *(\d{1,6}): "  # srun
)
_PARALLEL = re.compile(r"(?<![A-Za-z])([A-Z]P)(\d{1,6})(?![\dA-Za-z])")


def rank_of(wrapper: str) -> int | None:
    """Return the rank that a wrapper names, if it names one."""
    for other, number in _RANK.findall(wrapper):
        if not other:
            return int(number)
    launched = _LAUNCHED.search(wrapper)
    if launched:
        return int(next(filter(None, launched.groups())))
    return _parallel_rank(dict(_PARALLEL.findall(wrapper)))


def _parallel_rank(places: dict[str, str]) -> int | None:
    """Return the rank among several kinds of parallelism, where no more than one counts. The sizes
    of the kinds are unknown; the ranks of expert parallelism are those of another kind."""
    if len(places) > 1:
        places.pop("EP", None)
    counting = [int(number) for number in places.values() if int(number)]
    if not places or len(counting) > 1:
        return None
    if counting and len(places) > 1 and not int(places.get("TP", "0")):
        return None
    return counting[0] if counting else 0


class VaryingWords:
    """The words that vary within a process, by the shape of the wrapper."""

    def __init__(self) -> None:
        self._varying: dict[tuple[str, int], frozenset[int]] = {}

    def key(self, who: Origin) -> Key:
        varying = self._varying.get((who.shape, len(who.words)))
        if varying is None:
            return who.shape, who.words
        return who.shape, tuple("" if at in varying else word for at, word in enumerate(who.words))

    def differing(self, left: Origin, right: Origin) -> frozenset[int]:
        """Return the places of the words that differ and are not known to vary; none for wrappers
        of unlike shapes."""
        places = left.differing(right) or frozenset()
        return places - self._varying.get((left.shape, len(left.words)), frozenset())

    def key_of(self, key: Key) -> Key:
        """Return what a key is by now."""
        return self.key(Origin(*key))

    def vary(self, who: Origin, places: frozenset[int]) -> None:
        """Words at these places of such a wrapper do not name a process."""
        shape = who.shape, len(who.words)
        if len(self._varying) < _MAX_SHAPES:
            self._varying[shape] = self._varying.get(shape, frozenset()) | places


_MAX_SHAPES = 1000

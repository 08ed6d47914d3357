"""Which process wrote a line of a log, by the wrapper around what the line says.

Two processes have different wrappers, whatever launcher, container or logger made them. But some
words of a wrapper vary within a process, too: times, counters, line numbers, random ids. Times are
recognised by their form; every other word is taken to name the process until a table shows that it
does not: its lines go on, in order, under words that differ from those of its header.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

Key = tuple[str, tuple[str, ...]]
"""A process: the shape of its wrapper, and the words that do not vary."""


_LONGEST_NAME = 80


def name_of(key: Key) -> str:
    """Return a process as its wrapper names it, for a person."""
    words = (
        word if word.endswith(_GLUE) else f"{word} "
        for word in key[1]
        if word and _TIME_WORD not in word
    )
    return "".join(words).strip()[:_LONGEST_NAME]


Form = tuple[str, int]
"""What wrappers share that differ in words alone: the punctuation, and the number of words."""


class Origin(NamedTuple):
    """A wrapper: its punctuation, its words, and the rank that it names."""

    shape: str = ""
    words: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def form(self) -> Form:
        return self.shape, len(self.words)

    def akin(self, other: Origin) -> bool:
        """Return whether one wrapper has all words of the other, in order: some loggers put their
        prefix on some lines alone, and a progress bar may precede a header."""
        longer, shorter = self.words, other.words
        if len(longer) < len(shorter):
            longer, shorter = shorter, longer
        words = iter(longer)
        return all(word in words for word in shorter)

    def differing(self, other: Origin) -> frozenset[int] | None:
        """Return the places of the words that differ; None for wrappers of unlike shapes."""
        if self.form != other.form:
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
        bare = _TIME.sub(_TIME_WORD, wrapper)
        who = self._recent.get(bare)
        if who is None:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            words = tuple(_WORD.findall(bare)[:_MAX_WORDS])
            who = self._recent[bare] = Origin(_NO_SHAPE.sub("", bare), words, rank_of(bare))
        return who


_TIME_WORD = "ˑ"
"""Replaces a time. It is a letter, because a random id that looks like a time is a word."""
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
        self._varying: dict[Form, frozenset[int]] = {}

    def key(self, who: Origin) -> Key:
        varying = self._varying.get(who.form)
        if varying is None:
            return who.shape, who.words
        return who.shape, tuple("" if at in varying else word for at, word in enumerate(who.words))

    def places(self, who: Origin) -> frozenset[int]:
        """Return the places of the words of such a wrapper that vary."""
        return self._varying.get(who.form, frozenset())

    def differing(self, left: Origin, right: Origin) -> frozenset[int]:
        """Return the places of the words that differ and are not known to vary; none for wrappers
        of unlike shapes."""
        return (left.differing(right) or frozenset()) - self.places(left)

    def key_of(self, key: Key) -> Key:
        """Return what a key is by now."""
        return self.key(Origin(*key))

    def vary(self, who: Origin, places: frozenset[int]) -> None:
        """Words at these places of such a wrapper do not name a process."""
        if len(self._varying) < _MAX_FORMS:
            self._varying[who.form] = self.places(who) | places


class HeardWords:
    """The words of the latest lines, and numbers that never fell, like the seconds since a start:
    several processes that write at once would each come back to its own."""

    def __init__(self) -> None:
        self._latest: dict[Form, deque[Origin]] = {}
        self._rises: dict[Form, dict[int, int]] = {}

    def hear(self, who: Origin) -> None:
        """Take the wrapper of the next line."""
        latest = self._latest.get(who.form)
        if latest is None:
            if len(self._latest) < _MAX_FORMS:
                self._latest[who.form] = deque([who], _LATEST)
                self._rises[who.form] = {
                    at: 1 for at, word in enumerate(who.words) if _NUMBER.fullmatch(word)
                }
            return
        last = latest[-1]
        latest.append(who)
        rises = self._rises[who.form]
        for at, count in list(rises.items()) if last is not who else ():
            before, word = last.words[at], who.words[at]
            if _NUMBER.fullmatch(word) and float(word) > float(before):
                rises[at] = count + 1
            elif word != before:
                del rises[at]

    def rising(self, who: Origin, values: int) -> frozenset[int]:
        """Return the places of numbers that had at least this number of `values`."""
        rises = self._rises.get(who.form, {})
        return frozenset(at for at, count in rises.items() if count >= values)

    def again(self, who: Origin, at: int, varying: frozenset[int]) -> bool:
        """Whether two lines have the word of a wrapper at a place, and its words outside of
        the `varying` ones: so the word may be the name of their process."""
        same = [n for n in range(len(who.words)) if n == at or n not in varying]
        lines = self._latest.get(who.form, ())
        return sum(all(line.words[n] == who.words[n] for n in same) for line in lines) > 1


_LATEST = 256
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_MAX_FORMS = 1000

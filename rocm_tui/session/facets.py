"""What tells tunings apart beside op, sizes and types: device, layout of the operands, rank and
source; and which of these differ among rows that stand side by side. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from backend.model.inductor_kernel import is_kernel
from rocm_tui.session.by_device import device_name
from rocm_tui.session.difference import difference
from rocm_tui.session.model import Row
from rocm_tui.session.named import short_names


def rank_of(row: Row) -> str:
    return "" if row.tuning.rank is None else str(row.tuning.rank)


def source_of(row: Row) -> str:
    """The session that tuned it, else the file that tells of it, of kernels the whole cache."""
    source = row.tuning.session or next(iter(row.tuning.sources), "")
    return source.rsplit("/", 2)[0] if is_kernel(row.tuning.op) else source


def differing(rows: Sequence[Row]) -> tuple[str, ...]:
    """Those of tuner, device, devices, layout, rank and source of which more than one is known
    among the rows; of entries of tables tuner and device always, devices where a row has several.
    """
    return Differing().of(rows)


def tuner_of(row: Row) -> str:
    """Whose table has it; empty for Inductor's own."""
    return row.tuning.entry.tuner if row.tuning.entry else ""


_FACETS: Mapping[str, Callable[[Iterable[Row]], Iterable[str]]] = {
    "tuner": lambda rows: map(tuner_of, rows),
    "device": lambda rows: (row.device for row in rows),
    "devices": lambda rows: map(device_name, rows),
    "layout": lambda rows: (row.layout for row in rows),
    "rank": lambda rows: (rank_of(row) for row in rows if row.tuning.rank is not None),
    "source": lambda rows: map(source_of, rows),
}


class Differing:
    """The same for rows of which most stay as they were: those that came are asked alone, unless
    what is known may have gone with another."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._known = dict.fromkeys(_FACETS, frozenset[str]())

    def of(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """The facets that differ among rows, which are not changed afterwards."""
        gone, came = difference(self._rows, rows)
        self._rows = rows
        for name, tell in _FACETS.items():
            known, new = self._known[name], _two(tell(came))
            if known.intersection(tell(gone)) - new:
                known, new = frozenset(), _two(tell(rows))
            self._known[name] = _two([*known, *new])
        also = ("tuner", "device") if self._known["tuner"] else ()
        several = any(not one.rpartition(":")[2].isdecimal() for one in self._known["devices"])
        also = (*also, "devices") if several else also
        return tuple([n for n, known in self._known.items() if len(known) > 1 - (n in also)])


class SourceNames:
    """The short names of the sources of rows, of which most stay as they were."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._counts: dict[str, int] = {}
        self._names: Mapping[str, str] = {}

    def of(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """By source; of rows that are not changed afterwards."""
        gone, came = difference(self._rows, rows)
        self._rows = rows
        change = Counter(map(source_of, came))
        change.subtract(map(source_of, gone))
        before = self._counts.keys() & change.keys()
        for source, more in change.items():
            self._counts[source] = self._counts.get(source, 0) + more
            if not self._counts[source]:
                del self._counts[source]
        if before != self._counts.keys() & change.keys():
            self._names = short_names(self._counts)
        return self._names


def _two(texts: Iterable[str]) -> frozenset[str]:
    """The first two that differ; an empty one tells nothing."""
    first = ""
    for text in texts:
        if text != first and text:
            if first:
                return frozenset((first, text))
            first = text
    return frozenset((first,)) if first else frozenset()

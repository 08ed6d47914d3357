"""Compare the lookups of programs with tuned tables, by the rule of the tuner that looks them up.

TunableOp and hipBLASLt compare exactly. AITER rounds M of a product up, twice, and the tokens of a
fused mixture of experts fall back to another activation and to the largest step below; vLLM and
SGLang take the file of that very name. docs/tables.md names the sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import PurePath

from backend.counted import counted
from backend.tables.hipblaslt import KEY
from backend.tables.model import Entry, Fields, NotAProblem, Table, TableDevice
from backend.tables.registry import problem_of_entry
from rocm_tui.ingest import lookups
from rocm_tui.ingest.lookups import AITER, INDUCTOR, UNTOLD, Lookup, LookupCounts, Lookups
from rocm_tui.tables.device import may_be


class Verdict(str, Enum):
    MISSED = "missed"
    """The program missed it, and no given table has it."""
    UNKNOWN = "unknown"
    """Looked up; neither the log nor a given table says whether it is tuned."""
    COVERED = "covered"
    """A given table has it."""
    FOUND = "found"
    """The program found it, in a table that is not given."""


_ORDER = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Covered:
    """A question and its verdict; `hit` is the entry of a given table that answers it, `beside` one
    that has the product for another device, or under another name."""

    ask: Lookup
    tally: LookupCounts
    verdict: Verdict
    hit: TableAnswer | None = None
    beside: TableAnswer | None = None

    @property
    def lacking(self) -> bool:
        return self.verdict in (Verdict.MISSED, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Coverage:
    """All questions, those without an answer first, the most frequent first.

    `device` is what was looked up for, `nameless` counts by tuner the misses whose line names no
    product, `left` those beyond the limit, `repeated` the lines that Ray left out.
    """

    rows: tuple[Covered, ...]
    device: TableDevice = UNTOLD
    nameless: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    repeated: int = 0

    def of(self, *verdicts: Verdict) -> tuple[Covered, ...]:
        return tuple(row for row in self.rows if row.verdict in verdicts)

    @property
    def complete(self) -> bool:
        """Whether every lookup is known to be tuned."""
        return not self.nameless and not self.left and not any(row.lacking for row in self.rows)


def times(rows: Sequence[Covered]) -> int:
    """Return how often these were looked up."""
    return sum(row.tally.times for row in rows)


def cover(asked: Lookups, tables: Sequence[Table], device: TableDevice | None = None) -> Coverage:
    """Compare questions with tables; the device defaults to the one in the log."""
    of_log = device_of_log(asked)
    hits, beside = find(asked.tallies, tables, device, of_log)
    given = {table.tuner for table in tables if len(table.entries)}
    rows = []
    for ask, tally in asked.tallies.items():
        hit = hits.get(ask)
        verdict = Verdict.COVERED if hit else _verdict(ask, tally, given)
        rows.append(Covered(ask, tally, verdict, hit, None if hit else beside.get(ask)))
    rows.sort(key=lambda row: (_ORDER.index(row.verdict), -row.tally.times, _numeric(row.ask)))
    device = device or of_log
    return Coverage(tuple(rows), device, asked.nameless, asked.left, asked.repeated)


def _numeric(ask: Lookup) -> list[tuple[str, tuple[tuple[int, str], ...]]]:
    """An order in which numbers within the values are compared as numbers."""
    return [
        (name, tuple((int(part) if part.isdecimal() else -1, part) for part in _PARTS.split(value)))
        for name, value in ask.key
    ]


_PARTS = re.compile(r"([0-9]{1,18})")


def device_of_log(asked: Lookups) -> TableDevice:
    """Return the architecture and number of units in AITER's lines; each empty unless unique."""
    of_tables = [device for device in asked.devices if not device.name]
    arches = {device.arch for device in of_tables} - {""}
    units = {device.units for device in of_tables} - {None}
    return TableDevice(
        arches.pop() if len(arches) == 1 else "", units.pop() if len(units) == 1 else None
    )


def _verdict(ask: Lookup, tally: LookupCounts, given: set[str]) -> Verdict:
    """Return the verdict on a question that no given table answers."""
    if tally.missed or tally.noted:
        return Verdict.MISSED
    if tally.found or tally.matched:
        return Verdict.FOUND
    asked = BLAS if ask.tuner == INDUCTOR else {ask.tuner}
    return Verdict.MISSED if asked & given else Verdict.UNKNOWN


ONCE = frozenset({AITER, "moe"})
"""Tuners whose libraries name a question once a process, however often it is asked."""


@dataclass(frozen=True, slots=True)
class TableAnswer:
    """An entry that answers a question.

    `near` is how it does so if the match is not exact, or why it does not. `line` is 0 if the whole
    file answers.
    """

    path: str
    line: int
    solution: str = ""
    ms: float | None = None
    device: TableDevice = UNTOLD
    near: str = ""


@dataclass(frozen=True, slots=True)
class _Want:
    """A question with its rank (0 is the best answer), how its answer is inexact, why it is none
    for the library (`unlike`), and a condition."""

    ask: Lookup
    rank: int = 0
    near: str = ""
    unlike: str = ""
    holds: Callable[[Entry], bool] = lambda entry: True


LookupKey = tuple[object, ...]
Wants = dict[LookupKey, list[_Want]]


def find(
    asks: Iterable[Lookup],
    tables: Sequence[Table],
    given: TableDevice | None = None,
    of_log: TableDevice = UNTOLD,
) -> tuple[dict[Lookup, TableAnswer], dict[Lookup, TableAnswer]]:
    """Return the best answer of each question that has one, and entries that would be answers but
    for their device or name.

    It is looked up on the device that is `given`, else on that of the question, else `of_log`. An
    unknown property of a device equals anything.
    """
    by_tuner: dict[str, list[Lookup]] = {}
    for ask in asks:
        by_tuner.setdefault(ask.tuner, []).append(ask)
    hits: dict[Lookup, tuple[int, TableAnswer]] = {}
    beside: dict[Lookup, TableAnswer] = {}
    for table in tables:
        asked = by_tuner.get(table.tuner, ())
        products = by_tuner.get(lookups.INDUCTOR, ()) if table.tuner in BLAS else ()
        for want, entry in chain(_found(asked, table), _products(products, table)):
            ask = want.ask
            on = given or (of_log if ask.device == UNTOLD else ask.device)
            best = hits.get(ask)
            unlike = want.unlike or ("" if may_be(entry.device, on) else f"for {entry.device}")
            if unlike:
                beside.setdefault(ask, _answer(table, entry, unlike))
            elif best is None or want.rank < best[0]:
                hits[ask] = want.rank, _answer(table, entry, want.near)
    return {ask: hit for ask, (_, hit) in hits.items()}, beside


def _answer(table: Table, entry: Entry, near: str) -> TableAnswer:
    if table.tuner == lookups.MOE:
        return TableAnswer(
            table.path, 0, f"{counted(len(table.entries), 'step')} of M", None, entry.device, near
        )
    return TableAnswer(table.path, entry.line, entry.solution, entry.ms, entry.device, near)


def _found(asks: Sequence[Lookup], table: Table) -> Iterator[tuple[_Want, Entry]]:
    first = next(iter(table.entries), None)
    if not asks or first is None:
        return
    if table.tuner == lookups.MOE:
        # The file's name is what is looked up, to the letter; each step of M has all but M of it.
        folder, key = PurePath(table.path).parent.name, first.key[1:]
        near = folder if folder.startswith("triton_") else ""
        for ask in asks:
            if ask.op == first.op and _bare(ask.key) == _bare(key):
                unlike = "" if ask.key == key else f"called {PurePath(table.path).name}"
                unlike = unlike if ask.device == first.device else f"for {first.device}"
                yield _Want(ask, near=near, unlike=unlike), first
        return
    wants, key_of = _RULES[table.tuner](asks, table, first)
    for entry in table.entries:
        for want in wants.get(key_of(entry), ()):
            if entry.solution and want.holds(entry):
                yield want, entry


def _bare(key: Fields) -> Fields:
    """A key without the blanks that one library writes into its files' names and another does
    not."""
    return tuple((name, value.replace(" ", "")) for name, value in key)


BLAS = frozenset({lookups.TUNABLEOP, lookups.HIPBLASLT})
"""Tuners of the libraries that ATen calls."""


def _products(asks: Sequence[Lookup], table: Table) -> Iterator[tuple[_Want, Entry]]:
    """Entries that are the very products of Inductor's tunings."""
    wants = _wants_by(asks, lambda ask: (ask.op, ask.key))
    for entry in table.entries if wants else ():
        try:
            problem = problem_of_entry(table, entry)
        except NotAProblem:
            continue
        if entry.solution:
            for want in wants.get((problem.op, lookups.product_key(problem) or ()), ()):
                yield want, entry


def _wants_by(asks: Iterable[Lookup], key_of: Callable[[Lookup], LookupKey]) -> Wants:
    """Return the questions by a key; those of several devices have one."""
    wants: Wants = {}
    for ask in asks:
        wants.setdefault(key_of(ask), []).append(_Want(ask))
    return wants


_Rule = tuple[Wants, Callable[[Entry], LookupKey]]


def _signature_lookup(asks: Sequence[Lookup], table: Table, first: Entry) -> _Rule:
    """By op and the only text of the key."""
    wants = _wants_by(asks, lambda ask: (ask.op, ask.key[0][1]))
    return wants, lambda entry: (entry.op, entry.key[0][1])


def _hipblaslt_lookup(asks: Sequence[Lookup], table: Table, first: Entry) -> _Rule:
    wants = _wants_by(asks, lambda ask: _values(dict(ask.key), KEY))
    return wants, lambda entry: _values(dict(entry.key), KEY)


def _values(fields: Mapping[str, str], names: Iterable[str]) -> LookupKey:
    return tuple(lookups.aiter_value(fields.get(name, "")) for name in names)


def _aiter_lookup(asks: Sequence[Lookup], table: Table, first: Entry) -> _Rule:
    names = tuple(name for name, _ in first.key)
    if "token" in names:
        return _experts(asks, names, first.op)
    wants: Wants = {}
    for ask in asks:
        fields, assumed = _typed(dict(ask.key), names)
        if set(fields) != set(names):
            continue
        unlike = "" if _same_op(ask.op, first.op) else f"in a table of {first.op}"
        for rank, rows in enumerate(_padded(fields)):
            near = " ".join(filter(None, (f"as M {rows}" if rank else "", assumed)))
            key = _values({**fields, "M": rows} if rows else fields, names)
            if not (unlike and rank):
                wants.setdefault(key, []).append(_Want(ask, rank, near, unlike))
    return wants, lambda entry: _values(dict(entry.key), names)


def _typed(fields: dict[str, str], names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Fill in what an older untuned list of typed products lacks, as AITER e4048607 does.

    The result has the operands' type (gemm_a16w16_tune.py), the rest is False (tuned_gemm.py).
    """
    lacking = [name for name in lookups.AITER_TYPED if name in names and name not in fields]
    if "dtype" not in fields or not lacking:
        return fields, ""
    assumed = {name: fields["dtype"] if name == "outdtype" else "False" for name in lacking}
    return {**fields, **assumed}, ", ".join(f"{name} {value}" for name, value in assumed.items())


def _same_op(asked: str, of_table: str) -> bool:
    """Whether the ops are the same, as far as both are known: a table may have any name."""
    bare = ("gemm", "batched_gemm")
    return asked == of_table or asked in bare or of_table in bare


def _padded(fields: Mapping[str, str]) -> list[str]:
    """The M that are looked up, one after the other; a batch is looked up as it is."""
    if not fields.keys() >= {"M", "N", "K"}:
        return [""]
    rows, features = fields["M"], fields["N"]
    if "B" in fields or not (rows.isdigit() and features.isdigit()):
        return [rows]
    m = int(rows)
    step = next((step for most, step in _STEPS if m <= most), 128)
    coarse = 8192 if m > 8192 and int(features) > 4096 else next_power(m)
    return list(dict.fromkeys((rows, str(-(-m // step) * step), str(coarse))))


_STEPS = ((256, 16), (1024, 32), (4096, 64))


def next_power(number: int) -> int:
    """The least power of two that is not below it."""
    return 1 << max(number - 1, 0).bit_length()


_UNUSED = ("_tag", "flydsl_fallback")
"""Rows that the loader leaves out."""


def _experts(asks: Sequence[Lookup], names: Sequence[str], op: str) -> _Rule:
    bare = tuple(name for name in names if name != "act_type")
    wants: Wants = {}
    for ask in asks:
        fields = dict(ask.key)
        if ask.op != op or not set(bare) <= set(fields):
            continue
        ranked = [(fields["token"], ""), *((step, f"as {step} tokens") for step in _below(fields))]
        for rank, (tokens, near) in enumerate(ranked):
            key = _values({**fields, "token": tokens}, bare)
            same = partial(_is_used, fields.get("act_type", ""))
            other = partial(_is_used, "")
            note = ", ".join(filter(None, (near, "of another activation")))
            exact = _Want(ask, 2 * rank, near, holds=same)
            wants.setdefault(key, []).extend((exact, _Want(ask, 2 * rank + 1, note, holds=other)))
    return wants, lambda entry: _values(dict(entry.key), bare)


def _is_used(activation: str, entry: Entry) -> bool:
    """Whether the loader uses the entry; an empty activation fits any."""
    fits = not activation or dict(entry.key).get("act_type", activation) == activation
    return fits and _UNUSED not in entry.extra


def _below(fields: Mapping[str, str]) -> list[str]:
    return ["32768"] if fields["token"] == "131072" else []


_RULES: Mapping[str, Callable[[Sequence[Lookup], Table, Entry], _Rule]] = {
    lookups.TUNABLEOP: _signature_lookup,
    lookups.MIOPEN: _signature_lookup,
    lookups.AITER: _aiter_lookup,
    lookups.HIPBLASLT: _hipblaslt_lookup,
}

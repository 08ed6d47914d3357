"""Where a question finds its answer in given tables, by the rule of the tuner that looks it up.

TunableOp and hipBLASLt compare exactly. AITER rounds M of a product up, twice, and the tokens of a
fused mixture of experts fall back to another activation and to the largest step below; vLLM and
SGLang take the file of that very name. docs/tables.md names the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import PurePath

from backend.counted import counted
from backend.tables.gemm import NotAProblem
from backend.tables.hipblaslt import KEY
from backend.tables.model import Device, Entry, Table
from backend.tables.registry import problem_of_entry
from rocm_tui.ingest import lookups
from rocm_tui.ingest.lookups import UNTOLD, Ask
from rocm_tui.tables.device import may_be


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that answers a question; `near` is how it does where it is not asked for exactly.
    `line` is 0 where the whole file does."""

    path: str
    line: int
    solution: str = ""
    ms: float | None = None
    device: Device = UNTOLD
    near: str = ""


@dataclass(frozen=True, slots=True)
class _Want:
    """A question, on which device, how good this answer of it is (0 is best), and what else must
    hold."""

    ask: Ask
    rank: int = 0
    near: str = ""
    holds: Callable[[Entry], bool] = lambda entry: True


Key = tuple[object, ...]
Wants = dict[Key, list[_Want]]


def find(
    asks: Iterable[Ask],
    tables: Sequence[Table],
    given: Device | None = None,
    told: Device = UNTOLD,
) -> dict[Ask, Hit]:
    """The best answer of each question that has one: on the device that is `given`, else on the one
    that the question tells of, else on `told`. What a device does not tell equals anything."""
    by_tuner: dict[str, list[Ask]] = {}
    for ask in asks:
        by_tuner.setdefault(ask.tuner, []).append(ask)
    hits: dict[Ask, tuple[int, Hit]] = {}
    for table in tables:
        asked = by_tuner.get(table.tuner, ())
        products = by_tuner.get(lookups.INDUCTOR, ()) if table.tuner in BLAS else ()
        for want, entry in chain(_found(asked, table), _products(products, table)):
            ask = want.ask
            on = given or (told if ask.device == UNTOLD else ask.device)
            known = hits.get(ask)
            if may_be(entry.device, on) and (known is None or want.rank < known[0]):
                hits[ask] = want.rank, _hit(table, entry, want.near)
    return {ask: hit for ask, (_, hit) in hits.items()}


def _hit(table: Table, entry: Entry, near: str) -> Hit:
    if table.tuner == lookups.MOE:
        return Hit(
            table.path, 0, f"{counted(len(table.entries), 'step')} of M", None, entry.device, near
        )
    return Hit(table.path, entry.line, entry.solution, entry.ms, entry.device, near)


def _found(asks: Sequence[Ask], table: Table) -> Iterator[tuple[_Want, Entry]]:
    first = next(iter(table.entries), None)
    if not asks or first is None:
        return
    if table.tuner == lookups.MOE:
        # The file's name is what is looked up, to the letter; each step of M has all but M of it.
        asked_for = first.op, first.key[1:], first.device
        folder = PurePath(table.path).parent.name
        near = folder if folder.startswith("triton_") else ""
        yield from (
            (_Want(ask, near=near), first)
            for ask in asks
            if (ask.op, ask.key, ask.device) == asked_for
        )
        return
    wants, key_of = _RULES[table.tuner](asks, table, first)
    for entry in table.entries:
        for want in wants.get(key_of(entry), ()):
            if entry.solution and want.holds(entry):
                yield want, entry


BLAS = frozenset({lookups.TUNABLEOP, lookups.HIPBLASLT})
"""Tuners of the libraries that ATen calls."""


def _products(asks: Sequence[Ask], table: Table) -> Iterator[tuple[_Want, Entry]]:
    """Entries that are the very products of Inductor's tunings."""
    wants = {(ask.op, ask.key): _Want(ask) for ask in asks}
    for entry in table.entries if wants else ():
        try:
            problem = problem_of_entry(table, entry)
        except NotAProblem:
            continue
        want = wants.get((problem.op, lookups.product_key(problem) or ()))
        if want is not None and entry.solution:
            yield want, entry


_Rule = tuple[Wants, Callable[[Entry], Key]]


def _tunableop(asks: Sequence[Ask], table: Table, first: Entry) -> _Rule:
    wants: Wants = {(ask.op, ask.key[0][1]): [_Want(ask)] for ask in asks}
    return wants, lambda entry: (entry.op, entry.key[0][1])


def _hipblaslt(asks: Sequence[Ask], table: Table, first: Entry) -> _Rule:
    wants: Wants = {}
    for ask in asks:
        wants.setdefault(_values(dict(ask.key), KEY), []).append(_Want(ask))
    return wants, lambda entry: _values(dict(entry.key), KEY)


def _values(told: Mapping[str, str], names: Iterable[str]) -> Key:
    return tuple(lookups.aiter_value(told.get(name, "")) for name in names)


def _aiter(asks: Sequence[Ask], table: Table, first: Entry) -> _Rule:
    names = tuple(name for name, _ in first.key)
    if "token" in names:
        return _experts(asks, names, first.op)
    wants: Wants = {}
    for ask in asks:
        told, assumed = _typed(dict(ask.key), names)
        if set(told) != set(names) or not _same_op(ask.op, first.op):
            continue
        for rank, rows in enumerate(_padded(told)):
            near = " ".join(filter(None, (f"as M {rows}" if rank else "", assumed)))
            key = _values({**told, "M": rows} if rows else told, names)
            wants.setdefault(key, []).append(_Want(ask, rank, near))
    return wants, lambda entry: _values(dict(entry.key), names)


def _typed(told: dict[str, str], names: Sequence[str]) -> tuple[dict[str, str], str]:
    """With what an older untuned list of typed products does not tell as AITER e4048607 takes it:
    the result of the operands' type (gemm_a16w16_tune.py), and else False (tuned_gemm.py)."""
    lacking = [name for name in lookups.AITER_TYPED if name in names and name not in told]
    if "dtype" not in told or not lacking:
        return told, ""
    assumed = {name: told["dtype"] if name == "outdtype" else "False" for name in lacking}
    return {**told, **assumed}, ", ".join(f"{name} {value}" for name, value in assumed.items())


def _same_op(asked: str, of_table: str) -> bool:
    """As far as both tell: a table's name may be anything."""
    bare = ("gemm", "batched_gemm")
    return asked == of_table or asked in bare or of_table in bare


def _padded(told: Mapping[str, str]) -> list[str]:
    """The M that are looked up, one after the other; a batch is looked up as it is."""
    if not told.keys() >= {"M", "N", "K"}:
        return [""]
    rows, features = told["M"], told["N"]
    if "B" in told or not (rows.isdigit() and features.isdigit()):
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


def _experts(asks: Sequence[Ask], names: Sequence[str], op: str) -> _Rule:
    bare = tuple(name for name in names if name != "act_type")
    wants: Wants = {}
    for ask in asks:
        told = dict(ask.key)
        if ask.op != op or not set(bare) <= set(told):
            continue
        ranked = [(told["token"], ""), *((step, f"as {step} tokens") for step in _below(told))]
        for rank, (tokens, near) in enumerate(ranked):
            key = _values({**told, "token": tokens}, bare)
            same = partial(_is_used, told["act_type"])
            other = partial(_is_used, "")
            note = ", ".join(filter(None, (near, "of another activation")))
            wants.setdefault(key, []).extend(
                (_Want(ask, 2 * rank, near, same), _Want(ask, 2 * rank + 1, note, other))
            )
    return wants, lambda entry: _values(dict(entry.key), bare)


def _is_used(activation: str, entry: Entry) -> bool:
    """Of any activation where none is given."""
    fits = not activation or dict(entry.key).get("act_type", activation) == activation
    return fits and _UNUSED not in entry.extra


def _below(told: Mapping[str, str]) -> list[str]:
    return ["32768"] if told["token"] == "131072" else []


_RULES: Mapping[str, Callable[[Sequence[Ask], Table, Entry], _Rule]] = {
    lookups.TUNABLEOP: _tunableop,
    lookups.AITER: _aiter,
    lookups.HIPBLASLT: _hipblaslt,
}

"""What tables lack, in words: one line a question, a sum, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from backend.counted import counted, noun
from rocm_tui.ingest import lookups
from rocm_tui.ingest.lookups import UNTOLD, Lookup
from rocm_tui.json_output import JsonObject, fill
from rocm_tui.render.table import SPARE, Field, text_table
from rocm_tui.session import numbers as fmt
from rocm_tui.tables.coverage import ONCE, Coverage, Covered, TableAnswer, Verdict, times

_SHARED = "torch."


def product(ask: Lookup) -> str:
    """What was asked for, short: `M 64 N 1536 K 7168 int8`."""
    told = {name: value.removeprefix(_SHARED) for name, value in ask.key}
    if ask.tuner == lookups.AITER:
        return _experts(told) if "token" in told else _gemm(told)
    if ask.tuner == lookups.HIPBLASLT:
        sizes = "×".join(told.get(name, "?") for name in "mnk")
        batch = told.get("batch_count", "1")
        types = dict.fromkeys(told[name] for name in ("a_type", "c_type") if name in told)
        words = (told["transA"] + told["transB"], sizes, *types)
        return " ".join(words) + ("" if batch == "1" else f" batch {batch}")
    if ask.tuner == lookups.MOE:
        named = [f"{name} {told[name]}" for name in "ENK" if name in told]
        rest = [value for name, value in told.items() if name not in "ENK"]
        return " ".join((*named, ask.device.name, *rest))
    if ask.tuner == lookups.INDUCTOR:
        pairs = zip(told["shapes"].split(", "), told["strides"].split(", "), strict=True)
        shapes = (shape if steps.endswith("x1") else f"{shape}ᵀ" for shape, steps in pairs)
        return f"{', '.join(shapes)} {told['dtype']}"
    return next(iter(told.values()))


def _gemm(told: dict[str, str]) -> str:
    if not told.keys() >= {"M", "N", "K"}:
        return " ".join(f"{name} {value}" for name, value in told.items())
    parts = [f"{name} {told[name]}" for name in "BMNK" if name in told]
    dtype, out = told.get("dtype", ""), told.get("outdtype", "")
    types = [told.get("q_dtype_w", ""), dtype if out == dtype else f"{dtype}→{out}"]
    flags = [name for name in ("bias", "scaleAB", "bpreshuffle") if told.get(name) == "True"]
    return " ".join(part for part in (*parts, *types, *flags) if part)


def _experts(told: dict[str, str]) -> str:
    sizes = f"{told.get('model_dim', '?')}×{told.get('inter_dim', '?')}"
    types = dict.fromkeys(told.get(name, "") for name in ("q_dtype_a", "q_dtype_w"))
    quant = told.get("q_type", "").removeprefix("QuantType.")
    of = f"E {told.get('expert', '?')} top {told.get('topk', '?')}"
    return " ".join((f"{told['token']} tokens", of, sizes, *types, quant)).strip()


def _op(row: Covered) -> str:
    return "" if row.ask.tuner in (lookups.MOE, lookups.HIPBLASLT) else row.ask.op


_WORDS = {
    Verdict.MISSED: "missed",
    Verdict.UNKNOWN: "not told",
    Verdict.COVERED: "in tables",
    Verdict.FOUND: "found",
}
_STYLES = {
    Verdict.MISSED: "bad",
    Verdict.UNKNOWN: "dim",
    Verdict.COVERED: "good",
    Verdict.FOUND: "good",
}


def _where(row: Covered) -> str:
    hit = row.hit or row.beside
    if hit is None:
        return row.tally.table
    place = hit.path if not hit.line else f"{hit.path}:{hit.line}"
    if row.hit is None:
        return f"not {place} ({hit.near})"
    return f"{place} ({hit.near})" if hit.near else place


def _what(row: Covered) -> str:
    """What ran instead; what a table has."""
    return row.tally.way if row.hit is None else row.hit.solution


def _fields(all_times: int) -> tuple[Field[Covered], ...]:
    return (
        Field(
            "verdict", "Outcome", text=lambda row: _WORDS[row.verdict],
            style=lambda row: _STYLES[row.verdict],
            about="missed: no table has it; not told: the log does not say; in tables: a given "
            "table has it; found: the program found it",
        ),
        Field(
            "times", "Times", right=True, text=lambda row: fmt.narrow_count(row.tally.times),
            about="How often it was asked for.",
        ),
        Field(
            "share", "Share", right=True, drop=1, about="Of all that was asked for.",
            text=lambda row: fmt.percent(row.tally.times / all_times),
        ),
        Field(
            "tuner", "Tuner", drop=SPARE + 2, about="Whose table.", text=lambda row: row.ask.tuner
        ),
        Field("op", "Op", drop=SPARE + 1, least=10, about="In the tuner's words.", text=_op),
        Field(
            "product", "Asked for", least=50, good=64, about="What it is looked up by.",
            text=lambda row: product(row.ask),
        ),
        Field(
            "time", "Time", right=True, drop=2,
            about="Of the table's solution, where the table tells it.",
            text=lambda row: fmt.duration(row.hit.ms if row.hit else None),
        ),
        Field(
            "way", "Ran", drop=SPARE + 2, text=_what,
            about="What ran instead, or what the table has.",
        ),
        Field(
            "where", "Table", drop=SPARE + 3, good=40, text=_where,
            about="Where it was looked for, or found.",
        ),
    )  # fmt: skip


def cover_text(coverage: Coverage, rows: tuple[Covered, ...] | None = None) -> str:
    """A line a question."""
    shown = coverage.rows if rows is None else rows
    fields = _fields(max(times(coverage.rows), 1))
    used = [field for field in fields if any(field.text(row) not in _EMPTY for row in shown)]
    return text_table(used, shown) if shown else ""


_EMPTY = ("", fmt.NONE)


def cover_sum(coverage: Coverage) -> str:
    """`asked for 412 products 1.20M times: 37 missed, 61.0 % of the times; 375 in the tables`."""
    every = times(coverage.rows)
    parts = []
    for verdict in Verdict:
        rows = coverage.of(verdict)
        if rows:
            share = fmt.percent(times(rows) / max(every, 1))
            word = "in the given tables" if verdict is Verdict.COVERED else _WORDS[verdict]
            parts.append(f"{fmt.count(len(rows))} {word}, {share} of the times")
    often = f"{fmt.narrow_count(every)} {noun(every, 'time')}"
    head = f"asked for {counted(len(coverage.rows), 'product')} {often}"
    return f"{head}: {'; '.join(parts)}" if parts else "nothing was asked for"


def cover_notes(coverage: Coverage, tables: int) -> list[str]:
    """What must be known to read it."""
    tuners = {row.ask.tuner for row in coverage.rows}
    notes = []
    if tuners & ONCE:
        notes.append("AITER, vLLM and SGLang name a product once a process, however often it runs")
    if tables and lookups.AITER in tuners:
        device = coverage.device
        if device == UNTOLD and any(row.ask.device == UNTOLD for row in coverage.rows):
            notes.append(
                "the log does not tell the device: rows of any count (--device gfx942:304)"
            )
        elif device != UNTOLD:
            notes.append(f"looked up for {device}")
    beside = [row.beside for row in coverage.rows if row.beside is not None and row.lacking]
    if beside:
        products, place = counted(len(beside), "missed product"), PurePath(beside[0].path).name
        first = f"{place}:{beside[0].line}" if beside[0].line else place
        unlike = "for another device or under another name"
        notes.append(f"the tables have {products} {unlike}: first {first} ({beside[0].near})")
    if coverage.repeated:
        lines = counted(coverage.repeated, "line")
        notes.append(
            f"Ray left {lines} out as repeated, which may be of other sizes: it compares lines "
            "without their numbers (RAY_DEDUP_LOGS=0 prints each)"
        )
    for tuner, count in coverage.nameless.items():
        misses = counted(count, "miss", "misses")
        notes.append(f"{misses} of {TUNERS[tuner]} without a name: {_NAMED_BY[tuner]}")
    if coverage.left:
        lines = f"{fmt.count(coverage.left)} {noun(coverage.left, 'line')}"
        notes.append(f"{lines} more, of products beyond the first 200,000")
    return notes


class CoverEntryJson(JsonObject):
    """The entry of a table that covers a product, or would but for what `near` says."""

    path: str
    line: int | None
    solution: str
    ms: float | None
    ms_of_all: float | None
    device: str | None
    near: str | None


class WayJson(JsonObject):
    """What ran instead of a tuned kernel, and how often."""

    what: str
    times: int


class CoverRowJson(JsonObject):
    """A product that a program asked tuned tables for."""

    outcome: str
    tuner: str
    op: str
    key: dict[str, str]
    device: str | None
    times: int
    missed: int
    found: int
    ran: list[WayJson]
    looked_in: str | None
    entry: CoverEntryJson | None
    near_miss: CoverEntryJson | None

    @classmethod
    def of(cls, row: Covered) -> CoverRowJson:
        tally = row.tally
        return fill(
            cls,
            row.ask,
            tally,
            outcome=row.verdict.value,
            key=dict(row.ask.key),
            device=str(row.ask.device) or None,
            ran=[WayJson(what=way, times=count) for way, count in tally.ways.items()],
            looked_in=tally.table or None,
            entry=_entry_json(row.hit, tally.times),
            near_miss=_entry_json(row.beside, tally.times),
        )


def _entry_json(hit: TableAnswer | None, times: int) -> CoverEntryJson | None:
    if hit is None:
        return None
    return fill(
        CoverEntryJson,
        hit,
        line=hit.line or None,
        ms_of_all=None if hit.ms is None else hit.ms * times,
        device=str(hit.device) or None,
        near=hit.near or None,
    )


class WrittenJson(JsonObject):
    """An untuned list that was written."""

    path: str
    tuner: str
    rows: int
    run: str | None
    left_out: dict[str, int]


class CoverJson(JsonObject):
    complete: bool
    products: int
    times: int
    device: str | None
    nameless_misses: int
    nameless: Mapping[str, int]
    not_counted: int
    repeated: int
    rows: list[CoverRowJson]
    written: list[WrittenJson]

    @classmethod
    def of(cls, coverage: Coverage, written: list[WrittenJson]) -> CoverJson:
        return fill(
            cls,
            coverage,
            products=len(coverage.rows),
            times=times(coverage.rows),
            device=str(coverage.device) or None,
            nameless_misses=sum(coverage.nameless.values()),
            not_counted=coverage.left,
            rows=[CoverRowJson.of(row) for row in coverage.rows],
            written=written,
        )


_NAMED_BY = {
    lookups.TUNABLEOP: "newer releases of PyTorch tell of what",
    lookups.HIPBLASLT: "with HIPBLASLT_LOG_MASK=40 it names each call, too",
    lookups.MIOPEN: "with MIOPEN_LOG_LEVEL=6 it names each problem that it looks for, too",
}
"""Who does not say of what, and what does."""
TUNERS = {
    lookups.AITER: "AITER",
    lookups.MOE: "vLLM and SGLang",
    lookups.TUNABLEOP: "TunableOp",
    lookups.HIPBLASLT: "hipBLASLt",
    lookups.MIOPEN: "MIOpen",
}
"""As people write them."""

"""What tables lack, in words: one line a question, a sum, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from backend.counted import counted, noun
from rocm_tui.ingest import lookups
from rocm_tui.ingest.lookups import UNTOLD, Lookup
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.table import SPARE, Field, text_table
from rocm_tui.session import numbers as fmt
from rocm_tui.tables.coverage import ONCE, Coverage, Covered, TableAnswer, Verdict, times

_SHARED = "torch."


def product(ask: Lookup) -> str:
    """Return what was looked up, in short: `M 64 N 1536 K 7168 int8`."""
    values = {name: value.removeprefix(_SHARED) for name, value in ask.key}
    if ask.tuner == lookups.AITER:
        return _experts(values) if "token" in values else _gemm(values)
    if ask.tuner == lookups.HIPBLASLT:
        sizes = "×".join(values.get(name, "?") for name in "mnk")
        batch = values.get("batch_count", "1")
        types = dict.fromkeys(values[name] for name in ("a_type", "c_type") if name in values)
        words = (values["transA"] + values["transB"], sizes, *types)
        return " ".join(words) + ("" if batch == "1" else f" batch {batch}")
    if ask.tuner == lookups.MOE:
        named = [f"{name} {values[name]}" for name in "ENK" if name in values]
        rest = [value for name, value in values.items() if name not in "ENK"]
        return " ".join((*named, ask.device.name, *rest))
    if ask.tuner == lookups.INDUCTOR:
        pairs = zip(values["shapes"].split(", "), values["strides"].split(", "), strict=True)
        shapes = (shape if steps.endswith("x1") else f"{shape}ᵀ" for shape, steps in pairs)
        return f"{', '.join(shapes)} {values['dtype']}"
    return next(iter(values.values()))


def _gemm(key: dict[str, str]) -> str:
    if not key.keys() >= {"M", "N", "K"}:
        return " ".join(f"{name} {value}" for name, value in key.items())
    parts = [f"{name} {key[name]}" for name in "BMNK" if name in key]
    dtype, out = key.get("dtype", ""), key.get("outdtype", "")
    types = [key.get("q_dtype_w", ""), dtype if out == dtype else f"{dtype}→{out}"]
    flags = [name for name in ("bias", "scaleAB", "bpreshuffle") if key.get(name) == "True"]
    return " ".join(part for part in (*parts, *types, *flags) if part)


def _experts(key: dict[str, str]) -> str:
    sizes = f"{key.get('model_dim', '?')}×{key.get('inter_dim', '?')}"
    types = dict.fromkeys(key.get(name, "") for name in ("q_dtype_a", "q_dtype_w"))
    quant = key.get("q_type", "").removeprefix("QuantType.")
    of = f"E {key.get('expert', '?')} top {key.get('topk', '?')}"
    return " ".join((f"{key['token']} tokens", of, sizes, *types, quant)).strip()


_WORDS = {
    Verdict.MISSED: "missed",
    Verdict.UNKNOWN: "unknown",
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


_OF_ONE_OP = (lookups.MOE, lookups.HIPBLASLT)


def _fields(all_times: int) -> tuple[Field[Covered], ...]:
    return (
        Field(
            "verdict", "Outcome", text=lambda row: _WORDS[row.verdict],
            style=lambda row: _STYLES[row.verdict],
            about="missed: no table has it; unknown: the log does not say; in tables: a given "
            "table has it; found: the program found it",
        ),
        Field(
            "times", "Times", right=True, text=lambda row: fmt.narrow_count(row.tally.times),
            about="How often it was looked up.",
        ),
        Field(
            "share", "Share", right=True, drop=1, about="Of all lookups.",
            text=lambda row: fmt.percent(row.tally.times / all_times),
        ),
        Field(
            "tuner", "Tuner", drop=SPARE + 2, about="Whose table.", text=lambda row: row.ask.tuner
        ),
        Field(
            "op", "Op", drop=SPARE + 1, least=10, about="In the tuner's words.",
            text=lambda row: "" if row.ask.tuner in _OF_ONE_OP else row.ask.op,
        ),
        Field(
            "product", "Product", least=50, good=64, about="What it is looked up by.",
            text=lambda row: product(row.ask),
        ),
        Field(
            "time", "Time", right=True, drop=2,
            about="Of the table's solution, if the table has one.",
            text=lambda row: fmt.duration(row.hit.ms if row.hit else None),
        ),
        Field(
            "way", "Ran", drop=SPARE + 2, about="What ran instead, or what the table has.",
            text=lambda row: row.tally.way if row.hit is None else row.hit.solution,
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
    """`looked up 412 products 1.20M times: 37 missed, 61.0 % of the times; 375 in the tables`."""
    every = times(coverage.rows)
    parts = []
    for verdict in Verdict:
        rows = coverage.of(verdict)
        if rows:
            share = fmt.percent(times(rows) / max(every, 1))
            word = "in the given tables" if verdict is Verdict.COVERED else _WORDS[verdict]
            parts.append(f"{fmt.count(len(rows))} {word}, {share} of the times")
    often = f"{fmt.narrow_count(every)} {noun(every, 'time')}"
    head = f"looked up {counted(len(coverage.rows), 'product')} {often}"
    return f"{head}: {'; '.join(parts)}" if parts else "nothing was looked up"


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
                "the log does not name the device: rows of any count (--device gfx942:304)"
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


class CoverJson(Document, tag="rocm-tui/cover/1"):
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
    def of(
        cls, coverage: Coverage, rows: Iterable[Covered], written: list[WrittenJson]
    ) -> CoverJson:
        """The numbers are of the whole coverage, whichever rows are listed."""
        return fill(
            cls,
            coverage,
            products=len(coverage.rows),
            times=times(coverage.rows),
            device=str(coverage.device) or None,
            nameless_misses=sum(coverage.nameless.values()),
            not_counted=coverage.left,
            rows=[CoverRowJson.of(row) for row in rows],
            written=written,
        )


_NAMED_BY = {
    lookups.TUNABLEOP: "newer releases of PyTorch name it",
    lookups.HIPBLASLT: "with HIPBLASLT_LOG_MASK=40 it names each call, too",
    lookups.MIOPEN: "with MIOPEN_LOG_LEVEL=6 it names each problem that it looks for, too",
}
"""How to get the names that a tuner's log leaves out."""
TUNERS = {
    lookups.AITER: "AITER",
    lookups.MOE: "vLLM and SGLang",
    lookups.TUNABLEOP: "TunableOp",
    lookups.HIPBLASLT: "hipBLASLt",
    lookups.MIOPEN: "MIOpen",
}
"""As people write them."""

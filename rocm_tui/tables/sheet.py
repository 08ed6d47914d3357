"""A table made ready for the rules: its rows with their cells, how large each product is in the
direction that grows with a batch, and what it takes to compute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from backend.tables.model import Entry, Table, TableDevice
from rocm_tui.session.devices import MathKind

UNITS_ARCH = {256: "gfx950", 80: "gfx942", 304: "gfx942"}
"""The architecture that AITER assumes for a row without one, by its compute units."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of a row: operations, the least bytes to move, the arithmetic that bounds it.

    None if bytes are unknown, or if no peak of the arithmetic is published.
    """

    flops: int
    moved: int | None
    kind: MathKind | None


@dataclass(frozen=True, slots=True)
class SheetRow:
    """An entry of a table.

    `cells` are its key and other columns by name; `others` is the key without `m`, the size that
    grows with the batch: rows with equal `others` form a ladder.
    """

    entry: Entry
    cells: Mapping[str, str]
    m: int | None
    others: tuple[object, ...]
    work: Workload | None

    @property
    def line(self) -> int:
        return self.entry.line

    @property
    def device(self) -> TableDevice:
        """The device, with the architecture that AITER infers from its units if it has none."""
        own = self.entry.device
        if own.arch or own.name:
            return own
        return TableDevice(UNITS_ARCH.get(own.units or 0, ""), own.units)


@dataclass(frozen=True)
class Sheet:
    """A table with derived values that are computed once."""

    table: Table

    @cached_property
    def rows(self) -> tuple[SheetRow, ...]:
        return tuple(self.each_row())

    def each_row(self) -> Iterator[SheetRow]:
        """Yield the rows and keep none: tables that are read as one may have many."""
        return map(self._maker, self.table.entries)

    def row_at(self, line: int) -> SheetRow:
        entry = self.table.at_line(line)
        assert entry is not None
        return self._maker(entry)

    @property
    def _maker(self) -> Callable[[Entry], SheetRow]:
        return _MAKERS.get(self.table.tuner, _plain)

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """The facts of the file; of repeated ones the last."""
        return dict(self.table.facts)

    @cached_property
    def is_tuned(self) -> bool:
        """Whether it has results; an untuned list has none."""
        return any(row.entry.solution for row in self.rows)

    @property
    def tuner(self) -> str:
        return self.table.tuner

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return re.split(r"[/\\]", self.table.path)[-1]


def _plain(entry: Entry) -> SheetRow:
    return SheetRow(entry, _cells(entry), None, (), None)


def _cells(entry: Entry) -> dict[str, str]:
    return dict((*entry.extra, *entry.key))


_SIZES = re.compile(r"([nt]{2})_(\d{1,15})_(\d{1,15})_(\d{1,15})(?:_B_(\d{1,15}))?(.*)", re.ASCII)
_TUNABLE_TYPES: Mapping[str, tuple[float, MathKind]] = {
    "float": (4, "fp32"), "tf32": (4, "tf32"), "double": (8, "fp64"),
    "BFloat16": (2, "half"), "Half": (2, "half"),
}  # fmt: skip


def _tunableop(entry: Entry) -> SheetRow:
    """Make a row of TunableOp; the n of a BLAS library is the batch of a linear layer."""
    cells = _cells(entry)
    match = _SIZES.fullmatch(cells.get("params", ""))
    if match is None:
        return SheetRow(entry, cells, None, (), None)
    m, n, k, batch = (int(match[at] or 1) for at in (2, 3, 4, 5))
    others = (entry.op, match[1], m, k, batch, match[6])
    kind, _, behind = entry.op.partition("_")
    item = _TUNABLE_TYPES.get(behind.rpartition("_")[0])
    if item is None:
        fp8 = kind.startswith("Scaled") and "Float8" in behind
        return SheetRow(entry, cells, n, others, _gemm(batch, m, n, k, 1, "fp8") if fp8 else None)
    return SheetRow(entry, cells, n, others, _gemm(batch, m, n, k, item[0], item[1]))


def _gemm(batch: int, m: int, n: int, k: int, item: float, kind: MathKind | None) -> Workload:
    """The result counts with the bytes of an operand, of which no type in use has fewer."""
    moved = int(batch * (m * k + k * n + m * n) * item)
    return Workload(2 * batch * m * n * k, moved, kind)


_HIPBLASLT_TYPES: Mapping[str, tuple[float, MathKind]] = {
    "f64_r": (8, "fp64"), "f32_r": (4, "tf32"), "f16_r": (2, "half"), "bf16_r": (2, "half"),
    "f8_r": (1, "fp8"), "bf8_r": (1, "fp8"), "f8_fnuz_r": (1, "fp8"), "i8_r": (1, "int8"),
}  # fmt: skip


def _hipblaslt(entry: Entry) -> SheetRow:
    cells = _cells(entry)
    sizes = [_count(cells.get(name, "")) for name in ("m", "n", "k", "batch_count")]
    m, n, k, batch = sizes
    if m is None or n is None or k is None:
        return SheetRow(entry, cells, None, (), None)
    others = tuple((name, value) for name, value in entry.key if name not in _GROWS)
    types = {cells.get("a_type", ""), cells.get("b_type", "")}
    item = _HIPBLASLT_TYPES.get(types.pop()) if len(types) == 1 else None
    work = _gemm(batch or 1, m, n, k, *item) if item else None
    return SheetRow(entry, cells, n, others, work)


_GROWS = frozenset(("n", "ldc", "ldd", "stride_b", "stride_c", "stride_d"))


def _aiter(entry: Entry) -> SheetRow:
    cells = _cells(entry)
    size = next((name for name in ("token", "M", "m") if name in cells), "")
    m = _count(cells.get(size, ""))
    others = tuple((name, value) for name, value in entry.key if name != size)
    device = (entry.device.arch, entry.device.units)
    work = None if m is None else _moe(cells, m) if size == "token" else _linear(entry.op, cells, m)
    return SheetRow(entry, cells, m, (entry.op, device, *others), work)


def _linear(op: str, cells: Mapping[str, str], m: int) -> Workload | None:
    n, k = (_count(cells.get(name) or cells.get(name.lower(), "")) for name in "NK")
    batch = _count(cells.get("B") or cells.get("b") or "1")
    if n is None or k is None or batch is None:
        return None
    dtype = cells.get("q_dtype_w") or cells.get("dtype", "")
    usual: tuple[float, MathKind | None] = (1, "fp8") if "a8w8" in op else (0.5, None)
    item, kind = _AITER_TYPES.get(dtype, usual)
    return _gemm(batch, m, n, k, item, kind)


_AITER_TYPES: Mapping[str, tuple[float, MathKind | None]] = {
    "torch.bfloat16": (2, "half"), "torch.float16": (2, "half"),
    "torch.float8_e4m3fn": (1, "fp8"), "torch.float8_e4m3fnuz": (1, "fp8"),
    "torch.int8": (1, "int8"),
}  # fmt: skip


def _moe(cells: Mapping[str, str], tokens: int) -> Workload | None:
    """Two products for each token and expert that it goes to; the first is twice as wide with a
    gate. Which weights are read hangs on the routing."""
    names = ("model_dim", "inter_dim", "topk", "use_g1u1")
    model, inner, experts, gated = (_count(cells.get(name, "")) for name in names)
    if model is None or inner is None or experts is None or gated is None:
        return None
    flops = 2 * tokens * experts * model * inner * (3 if gated else 2)
    _, kind = _AITER_TYPES.get(cells.get("q_dtype_a", ""), (0.5, None))
    return Workload(flops, None, kind)


_STEP = re.compile(r"(?:M_(LEQ|GEQ)_)?(\d{1,9})", re.ASCII)


def _ladder(entry: Entry) -> SheetRow:
    """A step of a ladder; the way of the comparison is among `others`."""
    cells = _cells(entry)
    match = _STEP.fullmatch(entry.key[0][1]) if entry.key else None
    if match is None:
        return SheetRow(entry, cells, None, (), None)
    return SheetRow(entry, cells, int(match[2]), (match[1] or "",), None)


_MAKERS = {
    "tunableop": _tunableop,
    "hipblaslt": _hipblaslt,
    "aiter": _aiter,
    "aiter triton": _ladder,
    "moe": _ladder,
}


def _count(text: str) -> int | None:
    """A size; None where it is none. Some tables write `1.0` or `True`."""
    word = text.strip().lower().removesuffix(".0")
    if word in ("true", "false"):
        return int(word == "true")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 16 else None

"""The sides of a trial of tuned tables: a program with one table, and with another or none.

A program gets a private copy of its table, by the environment variables that its library reads, and
runs as usual otherwise. In its first run, which does not count, the library also logs its lookups:
a table of which no lookup was seen is never said to change anything.

TunableOp (aten/src/ATen/cuda/tunable/Tunable.cpp) reads PYTORCH_TUNABLEOP_FILENAME with the number
of the current device before the last dot, and nothing while it records untuned products. It writes
the file at exit where tuning is on, and PyTorch 2.3 opens it for writing at once.

AITER (aiter/jit/core.py, e4048607) reads one variable for each kind of table. Without it, it merges
the tables that it brings; with it, it reads that table alone. Of several paths in a variable it
writes rows back into the files, so there is only ever one here.

vLLM looks into VLLM_TUNED_CONFIG_FOLDER first, then among its own files (get_moe_configs in
vllm/model_executor/layers/fused_moe/fused_moe.py). SGLang looks for configs/triton_X_Y_Z/NAME in
SGLANG_MOE_CONFIG_DIR, which replaces its own folder (fused_moe_triton_config.py). Neither has a
variable for products with scales of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.tables.ladder import BLOCKS, moe_name
from backend.tables.model import Table
from backend.tables.registry import read_table
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest.lookups import (
    AITER,
    BEGINNING,
    MOE,
    TUNABLEOP,
    Lookup,
    LookupCounts,
    Lookups,
    is_untuned_list,
    read_lookups,
)
from rocm_tui.jobs.program import SIDES, Side, TableUse
from rocm_tui.tables.coverage import device_of_log, find

_TUNABLEOP = tuple(
    f"PYTORCH_TUNABLEOP_{name}" for name in ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME")
)
_ORDINALS = 64
"""Devices of a host: eight of eight partitions."""
_AITER = {
    "gemm_a16w16": "AITER_CONFIG_GEMM_BF16",
    "gemm_a4w4": "AITER_CONFIG_GEMM_A4W4",
    "gemm_a4w4_blockscale": "AITER_CONFIG_GEMM_A4W4",
    "gemm_a8w8": "AITER_CONFIG_GEMM_A8W8",
    "gemm_a8w8_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE",
    "gemm_a8w8_blockscale": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
    "gemm_a8w8_blockscale_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE",
    "batched_gemm_a8w8": "AITER_CONFIG_A8W8_BATCHED_GEMM",
    "batched_gemm_bf16": "AITER_CONFIG_BF16_BATCHED_GEMM",
    "fused_moe": "AITER_CONFIG_FMOE",
}
"""The variable for each op of AITER's tables whose lookups its log reports."""
_VLLM, _SGLANG = "VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR"
_LOGGED = {
    TUNABLEOP: {"PYTORCH_TUNABLEOP_VERBOSE": "3", "PYTORCH_TUNABLEOP_VERBOSE_FILENAME": "err"},
    AITER: {"AITER_LOG_TUNED_CONFIG": "1", "AITER_LOG_LEVEL": "INFO"},
    MOE: {"VLLM_LOGGING_LEVEL": "INFO"},
}
"""What makes each library log its lookups."""
_MOST = 2

Compared = tuple[Table | None, Table]
"""The tables of both sides, the baseline first, which may have none."""


def read_tables(paths: Sequence[Path]) -> Compared:
    """Read one table or two. Raises UsageError and CacheUnreadable."""
    if len(paths) > _MOST:
        raise UsageError("--table is given once, to compare with no table, or twice")
    tables = [read_table(path) for path in paths]
    first, *others = map(variables_of, tables)
    if others and others != [first]:
        raise UsageError(
            f"{tables[0].path} and {tables[1].path} cannot be compared: a program is given the "
            f"first by {', '.join(first)}, the second by {', '.join(others[0])}"
        )
    return (tables[0] if others else None), tables[-1]


def variables_of(table: Table) -> tuple[str, ...]:
    """Return the environment variables by which a program is given a table. Raises UsageError."""
    if is_untuned_list(table) or not len(table.entries):
        raise UsageError(f"{table.path} has no row with a solution")
    op = table.entries[0].op
    folder = Path(table.path).absolute().parent.name
    if table.tuner == TUNABLEOP:
        return _TUNABLEOP
    if table.tuner == MOE and op != BLOCKS and moe_name(Path(table.path).name):
        return (_VLLM, _SGLANG) if folder.startswith("triton_") else (_VLLM,)
    if table.tuner == AITER and op in _AITER:
        return (_AITER[op],)
    raise UsageError(
        f"no environment variable gives a program {table.path} ({table.tuner}, {op}): trial takes "
        "tables of TunableOp, of AITER under AITER's own names, and fused_moe of vLLM and SGLang"
    )


class TableSides:
    """A side with the first table or none, and a side with the second one.

    `labels` name them to a person; `tables` are filled in after both sides ran once.
    """

    hooks = False

    def __init__(self, compared: Compared, layouts: Mapping[Side, Layout]) -> None:
        self._tables: Mapping[Side, Table | None] = dict(zip(SIDES, compared, strict=True))
        self._tuner = compared[1].tuner
        self._layouts = layouts
        self._names = _names(compared)
        self.labels: Mapping[Side, str] = {
            side: f"with {name}" for side, name in self._names.items()
        }
        self.tables: tuple[TableUse, ...] = ()
        unset = variables_of(compared[1])
        self._variables = {side: self._give(side, unset) for side in SIDES}
        self._heard: dict[Side, list[str]] = {side: [] for side in SIDES}
        self._room = dict.fromkeys(SIDES, BEGINNING)

    def _folder(self, side: Side) -> Path:
        return self._layouts[side].root / "tables"

    def _give(self, side: Side, unset: Sequence[str]) -> Mapping[str, str | None]:
        """Copy the table of a side, and return the variables that lead to the copy."""
        table, folder = self._tables[side], self._folder(side)
        safe.make_folder(self._layouts[side].root, folder)
        if self._tuner == TUNABLEOP:
            path = folder / "tunableop_results.csv"
            if table is not None:
                safe.write_atomic(path, table.data)
                for ordinal in range(_ORDINALS):
                    (folder / f"{path.stem}{ordinal}{path.suffix}").symlink_to(path.name)
            values = ("0" if table is None else "1", "0", "0", str(path))
            return dict(zip(_TUNABLEOP, values, strict=True))
        if table is None:
            return dict.fromkeys(unset)
        path = folder / Path(table.path).name
        safe.write_atomic(path, table.data)
        if _SGLANG in unset:
            within = folder / "configs" / Path(table.path).absolute().parent.name
            safe.make_folder(folder, within)
            safe.write_atomic(within / path.name, table.data)
        return dict.fromkeys(unset, str(path if self._tuner == AITER else folder))

    def environment(self, side: Side, pair: int) -> Mapping[str, str | None]:
        """Return what a run needs besides its cache dir; None unsets a variable."""
        return {**self._variables[side], **({} if pair else _LOGGED[self._tuner])}

    def hear(self, side: Side, pair: int, line: str) -> None:
        if not pair and self._room[side] > 0:
            self._heard[side].append(line)
            self._room[side] -= len(line)

    def doubts(self, code: Mapping[Side, frozenset[bytes]]) -> tuple[str, ...]:
        """Return what is doubtful after both sides ran once and compiled `code`."""
        answers = {side: self._lookups(side) for side in SIDES}
        texts = []
        if code["with"] != code["without"]:
            texts.append(
                "The sides compiled different code, so the difference is not the tables' alone."
            )
        hit, other = answers.values()
        if hit and hit == other and None not in hit.values():
            lookups = counted(len(hit), "lookup")
            texts.append(f"Both tables have the same solution for the {lookups} that hit.")
        return tuple(texts)

    def _lookups(self, side: Side) -> dict[Lookup, str | None]:
        """Count the lookups of a side's first run, and return the solution of each hit, as far as
        it is known."""
        table, asked, name = self._tables[side], Lookups(), self._names[side]
        if table is None:
            self.tables += (TableUse(None, name, self._tuner, 0, 0, 0),)
            return {}
        log = self._layouts[side].root / "first-run.log"
        safe.write_atomic(log, "\n".join(self._heard[side]).encode())
        read_lookups(log, asked)
        counts = {ask: each for ask, each in asked.tallies.items() if ask.tuner == self._tuner}
        found = find(counts, [table], None, device_of_log(asked))[0]
        hits = [ask for ask, each in counts.items() if self._is_hit(side, each, ask in found)]
        missed = sum(bool(each.missed) for each in counts.values())
        rows = len(table.entries)
        self.tables += (TableUse(table.path, name, self._tuner, rows, len(hits), missed),)
        if self._tuner == MOE:  # the whole file answers
            return dict.fromkeys(hits)
        return {ask: found[ask].solution if ask in found else None for ask in hits}

    def _is_hit(self, side: Side, counts: LookupCounts, answered: bool) -> bool:
        """Whether the library found a row of our copy: it names the file, or has no other one."""
        ours = Path(counts.table).is_relative_to(self._folder(side)) if counts.table else answered
        return ours and bool(counts.found)


def _names(compared: Compared) -> dict[Side, str]:
    """Return what a person calls the tables: their files' names, or their paths if these are
    equal."""
    paths = [None if table is None else Path(table.path) for table in compared]
    alike = len({path.name for path in paths if path}) < sum(path is not None for path in paths)
    names = ["no table" if path is None else str(path) if alike else path.name for path in paths]
    return {side: plain(name) for side, name in zip(SIDES, names, strict=True)}

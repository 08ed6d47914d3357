"""Untuned lists and tuning commands in the format of each tuner."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from backend.tables.ladder import BLOCKS
from backend.tables.tunableop import UNSCALED
from rocm_tui.ingest import lookups
from rocm_tui.tables.coverage import Covered


@dataclass(frozen=True, slots=True)
class Untuned:
    """A list to be written, the most frequent question first.

    It has `rows` products; `run` is the command that tunes it, with `{file}` for its path.
    `left_out` counts the products that are not in it, by reason.
    """

    name: str
    tuner: str
    text: str
    rows: int
    run: str
    left_out: tuple[tuple[str, int], ...] = ()


_CK = "gemm_a8w8 gemm_a8w8_bpreshuffle gemm_a8w8_blockscale gemm_a4w4_blockscale"
_BLOCKSCALE = "ck_gemm_a8w8_blockscale/gemm_a8w8_blockscale_tune.py"
_AITER = {
    **{op: (f"{op[5:]}_untuned_gemm", f"ck_{op}/{op}_tune.py") for op in _CK.split()},
    **{
        f"batched_gemm_{kind}": (
            f"{kind}_untuned_batched_gemm",
            f"ck_batched_gemm_{kind}/batched_gemm_{kind}_tune.py",
        )
        for kind in ("a8w8", "bf16")
    },
    "gemm_a16w16": ("bf16_untuned_gemm", "gemm_a16w16/gemm_a16w16_tune.py"),
    "gemm_a8w8_blockscale_bpreshuffle": (
        "a8w8_blockscale_bpreshuffle_untuned_gemm", f"{_BLOCKSCALE} --preshuffle",
    ),
    lookups.FUSED_MOE: ("untuned_fmoe", "ck_gemm_moe_2stages_codegen/gemm_moe_tune.py"),
}  # fmt: skip
"""The name of AITER's list for each op, and its tuner, below `csrc` of its checkout."""
TUNABLEOP_RUN = (
    "PYTORCH_TUNABLEOP_ENABLED=1 python3 -c 'import sys, torch.cuda.tunable as t; "
    "t.tuning_enable(); t.tune_gemm_in_file(sys.argv[1])' {file}"
)
"""The command that tunes a list of TunableOp on a GPU."""
_WORD = re.compile(r"\d{1,15}|[A-Za-z]\w{0,40}(?:\.[A-Za-z]\w{0,40})?", re.ASCII)
"""A number, or a name with its module or class: AITER's tuner evaluates the cells as Python."""
_NO_TYPES = "the log does not name their types"
_NO_STEPS = "without leading dimensions, which PyTorch's reader needs"
_ALIKE = "a bias on matrices of equal layout, which PyTorch's reader refuses"
_SCALED_ALIKE = "an fp8 product of another layout than TN, which PyTorch's reader refuses"
_ODD = "with a word that no list can hold"


class _Unfit(Exception):
    """The list cannot hold this row; the text says why."""


def untuned_lists(rows: Iterable[Covered]) -> list[Untuned]:
    """Return a list for each tuner and table, with those `rows` that lack an entry."""
    groups: dict[tuple[str, str, object], list[Covered]] = {}
    for row in rows:
        if row.lacking and row.ask.tuner in _MAKERS:
            groups.setdefault((row.ask.tuner, _group(row), _names(row)), []).append(row)
    lists = [_MAKERS[tuner](name, group) for (tuner, name, _), group in groups.items()]
    return _renamed(sorted(lists, key=lambda one: -one.rows))


def _group(row: Covered) -> str:
    if row.ask.tuner == lookups.AITER:
        return row.ask.op
    if row.ask.tuner == lookups.MOE:
        return "sglang" if "sglang" in row.tally.table.lower() else "vllm"
    return ""


def _names(row: Covered) -> object:
    """Return the columns: a list has one header, and older lines of a table have fewer."""
    return tuple(name for name, _ in row.ask.key) if row.ask.tuner == lookups.AITER else ()


def _renamed(lists: Sequence[Untuned]) -> list[Untuned]:
    """Each name once."""
    seen: dict[str, int] = {}
    out = []
    for untuned in lists:
        seen[untuned.name] = seen.get(untuned.name, 0) + 1
        stem, dot, suffix = untuned.name.rpartition(".")
        name = (
            untuned.name if seen[untuned.name] == 1 else f"{stem}-{seen[untuned.name]}{dot}{suffix}"
        )
        out.append(replace(untuned, name=name))
    return out


def _made(
    name: str,
    tuner: str,
    rows: Sequence[Covered],
    line: Callable[[Covered], str],
    run: str,
    head: Sequence[str] = (),
) -> Untuned:
    lines: dict[str, None] = {}
    left_out: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: -row.tally.times):
        try:
            lines[line(row)] = None
        except _Unfit as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
    text = "".join(f"{line}\n" for line in (*head, *lines)) if lines else ""
    return Untuned(name, tuner, text, len(lines), run, tuple(left_out.items()))


def _aiter(op: str, rows: Sequence[Covered]) -> Untuned:
    columns = [name for name, _ in rows[0].ask.key]
    name, tool = _AITER.get(op, (f"untuned_{op}", ""))
    output = "tuned".join(name.rsplit("untuned", 1))
    run = f"python3 csrc/{tool} -i {{file}} -o {output}.csv" if tool else ""

    def line(row: Covered) -> str:
        if op == "gemm_bf16":  # older lines
            raise _Unfit(_NO_TYPES)
        return ",".join(_cell(name, value, op) for name, value in row.ask.key)

    return _made(f"{name}.csv", lookups.AITER, rows, line, run, [",".join(columns)])


def _cell(name: str, value: str, op: str) -> str:
    if not _WORD.fullmatch(value):
        raise _Unfit(_ODD)
    if op != lookups.FUSED_MOE:
        return value
    # As AITER writes its own list: flags are numbers, and a weight of uint32 is one of int4.
    if name == "q_dtype_w" and value == "torch.uint32":
        return "torch.int4"
    return lookups.aiter_value(value)


def _tunableop(_: str, rows: Sequence[Covered]) -> Untuned:
    def line(row: Covered) -> str:
        params = row.ask.key[0][1]
        if "_ld_" not in params:
            raise _Unfit(_NO_STEPS)
        if row.ask.op.startswith("Scaled"):
            if "_rw_" not in params:
                raise _Unfit(UNSCALED)
            if not row.ask.op.endswith("_TN"):
                raise _Unfit(_SCALED_ALIKE)
        if row.ask.op.startswith("GemmAndBias") and row.ask.op.endswith(("_NN", "_TT")):
            raise _Unfit(_ALIKE)
        return f"{row.ask.op},{params}"

    return _made("tunableop_untuned0.csv", lookups.TUNABLEOP, rows, line, TUNABLEOP_RUN)


def _hipblaslt(_: str, rows: Sequence[Covered]) -> Untuned:
    def line(row: Covered) -> str:
        if not row.tally.call:
            raise _Unfit("without the call that asked")
        return row.tally.call

    run = "HIPBLASLT_TUNING_FILE=hipblaslt_tuning.txt sh {file}"
    return _made("hipblaslt_bench.sh", lookups.HIPBLASLT, rows, line, run)


def _moe(library: str, rows: Sequence[Covered]) -> Untuned:
    """Make the commands for MoE; the benchmark takes sizes from the model, which no log names."""
    run = "MODEL=... TP=... sh {file}"
    return _made(f"moe_{library}.sh", lookups.MOE, rows, lambda row: _benchmark(library, row), run)


def _benchmark(library: str, row: Covered) -> str:
    fields = dict(row.ask.key)
    dtype = fields.get("dtype", "auto")
    if not _WORD.fullmatch(dtype):
        raise _Unfit(_ODD)
    if row.ask.op == BLOCKS:
        at = "benchmarks/kernels" if library == "vllm" else "benchmark/kernels/quantization"
        name = "benchmark_w8a8_block_fp8" if library == "vllm" else "tuning_block_wise_kernel"
        return f'python3 {at}/{name}.py --tp-size "$TP"  # {_comment(row)}'
    at = (
        "benchmarks/kernels/benchmark_moe.py"
        if library == "vllm"
        else "benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py"
    )
    return (
        f'python3 {at} --model "$MODEL" --tp-size "$TP" --dtype {dtype} --tune  # {_comment(row)}'
    )


def _comment(row: Covered) -> str:
    fields = (*row.ask.key, ("device_name", row.ask.device.name))
    text = ",".join(f"{name}={value}" for name, value in fields)
    return "".join(char if char.isprintable() and char.isascii() else "?" for char in text)[:200]


_MAKERS: dict[str, Callable[[str, Sequence[Covered]], Untuned]] = {
    lookups.AITER: _aiter,
    lookups.TUNABLEOP: _tunableop,
    lookups.HIPBLASLT: _hipblaslt,
    lookups.MOE: _moe,
}

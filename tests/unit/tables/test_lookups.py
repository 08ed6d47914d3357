"""Lines of libraries about what their tables lack, made after the sources that print them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.model.problem import Problem
from backend.tables.model import TableDevice
from rocm_tui.ingest import lookups
from rocm_tui.ingest.lookups import (
    Lookup,
    LookupCounts,
    LookupLine,
    LookupOutcome,
    Lookups,
    product_key,
    read_lookups,
)
from rocm_tui.render.cover import cover_notes
from rocm_tui.tables.coverage import cover

SIZES = (("M", "64"), ("N", "1536"), ("K", "7168"))
BF16 = (
    *(("M", "1"), ("N", "32"), ("K", "4096"), ("bias", "False"), ("dtype", "torch.bfloat16")),
    *(("outdtype", "torch.float32"), ("scaleAB", "False"), ("bpreshuffle", "False")),
)
TYPED = "dtype='torch.bfloat16' otype='torch.float32' bias=False, scaleAB=False, bpreshuffle=False"
EXPERTS = (
    "2048, 7168, 256, 256, 8, {}, 'torch.bfloat16', 'torch.float8_e4m3fnuz', "
    "'torch.float8_e4m3fnuz', 'QuantType.per_1x128', True, False)"
)
FUSED = (
    *(("token", "2048"), ("model_dim", "7168"), ("inter_dim", "256"), ("expert", "256")),
    *(("topk", "8"), ("act_type", "ActivationType.Silu"), ("dtype", "torch.bfloat16")),
    *(("q_dtype_a", "torch.float8_e4m3fnuz"), ("q_dtype_w", "torch.float8_e4m3fnuz")),
    *(("q_type", "QuantType.per_1x128"), ("use_g1u1", "True"), ("doweight_stage1", "False")),
)
CALL = (
    "hipblaslt-bench --api_method c -m 48 -n 176 -k 1024 --lda 48 --alpha 1.000000 --beta 0.000000 "
    "--transA N --transB T --batch_count 1 --a_type bf16_r --b_type bf16_r --c_type bf16_r "
    "--d_type bf16_r --compute_type f32_r"
)


def test_answers_are_counted_with_what_was_run_most_often_and_the_first_call() -> None:
    counts, ask = LookupCounts(), Lookup("hipblaslt", "gemm", SIZES)
    assert (counts.times, counts.way) == (0, "")
    for number, times in ((1, 2), (2, 3)):
        said = LookupLine(ask, LookupOutcome.UNTOLD, f"solution {number}", call=f"call {number}")
        counts.add(said, times)
    counts.add(LookupLine(ask, LookupOutcome.MISSED, table="first.csv"))
    counts.add(LookupLine(ask, LookupOutcome.FOUND, table="second.csv"))
    assert (counts.untold, counts.missed, counts.found, counts.times) == (5, 1, 1, 7)
    assert (counts.way, counts.call, counts.table) == ("solution 2", "call 1", "first.csv")
    for number in range(9):
        counts.add(LookupLine(ask, LookupOutcome.UNTOLD, f"way {number}"))
    assert len(counts.ways) == 9 and counts.ways["other ways"] == 3
    counts.add(LookupLine(ask, LookupOutcome.UNTOLD, "solution 2"))
    assert counts.ways["solution 2"] == 4 and counts.ways["other ways"] == 3


def read(tmp_path: Path, *lines: str) -> Lookups:
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines) + "\n")
    asked = Lookups()
    read_lookups(log, asked)
    return asked


def only(tmp_path: Path, *lines: str) -> tuple[Lookup, LookupCounts]:
    ((ask, tally),) = read(tmp_path, *lines).tallies.items()
    return ask, tally


@pytest.mark.parametrize(
    ("line", "op", "key", "way"),
    [
        (
            "M:64, N:1536, K:7168, not found tuned config in "
            "/tmp/aiter_configs/a8w8_blockscale_tuned_gemm.csv, will use default config!",
            "gemm_a8w8_blockscale",
            SIZES,
            "default config",
        ),
        (
            "M:64, N:1536, K:7168, q_dtype_w:torch.int8, not found tuned config in "
            "/opt/a8w8_tuned_gemm.csv, will use default config!",
            "gemm_a8w8",
            (*SIZES, ("q_dtype_w", "torch.int8")),
            "default config",
        ),
        (
            f"M:1, N:32, K:4096 {TYPED}, not found tuned config in /c/bf16_tuned_gemm.csv, "
            "will use default config! using skinny solution:2",
            "gemm_a16w16",
            BF16,
            "skinny, solution 2",
        ),
        (
            "M:64, N:1536, K:7168, not found tuned config in CKGEMM or asmGEMM, will use default",
            "gemm",
            SIZES,
            "default config",
        ),
        (
            "B:16, M:64, N:1536, K:7168 dtype is bf16, not found tuned config in CKGEMM, will",
            "batched_gemm_bf16",
            (("B", "16"), *SIZES),
            "default config",
        ),
    ],
)
def test_aiter_missed_a_product(
    tmp_path: Path, line: str, op: str, key: tuple[tuple[str, str], ...], way: str
) -> None:
    """ROCm/aiter e4048607: tuned_gemm.py, ops/gemm_op_a8w8.py, gemm_op_a4w4.py,
    batched_gemm_op_*.py; 2f2fbb25 for the name CKGEMM."""
    lines = [f"{prefix}[aiter] shape is {line}" for prefix in ("", "\x1b[32m(Worker pid=1) ")]
    ask, tally = only(tmp_path, *lines)
    assert (ask.tuner, ask.op, ask.key) == ("aiter", op, key)
    assert (tally.missed, tally.found, tally.way) == (2, 0, way)


@pytest.mark.parametrize(
    ("line", "key", "units", "way"),
    [
        (
            f"shape is M:1, N:32, K:4096 {TYPED} found padded_M: 16, N:32, K:4096 is tuned on "
            "cu_num = 304 in /c/bf16_tuned_gemm.csv, libtype is asm, kernel name is bf16_x",
            BF16,
            304,
            "asm bf16_x",
        ),
        (
            "shape is M:64, N:1536, K:7168, found padded_M: 64, N:1536, K:7168 is tuned on cu_num "
            "= 256 in /c/my.csv , kernel name is _ZN5k, splitK is 0!",
            SIZES,
            256,
            "_ZN5k",
        ),
        (
            "shape M:64, N:1536, K:7168 q_dtype_w:torch.int8, found padded_M: 64, N:1536, K:7168 "
            "is tuned, in /c/a8w8_bpreshuffle_tuned_gemm.csv! libtype is ck! kernelName is k3 "
            "(kernelId 3)!",
            (*SIZES, ("q_dtype_w", "torch.int8")),
            None,
            "ck k3",
        ),
    ],
)
def test_aiter_found_a_product(
    tmp_path: Path, line: str, key: tuple[tuple[str, str], ...], units: int | None, way: str
) -> None:
    """ROCm/aiter e4048607, with AITER_LOG_TUNED_CONFIG=1."""
    asked = read(tmp_path, line)
    ((ask, tally),) = asked.tallies.items()
    assert (ask.key, tally.missed, tally.found, tally.way) == (key, 0, 1, way)
    assert asked.devices == (set() if units is None else {TableDevice(units=units)})


def test_aiter_tells_of_experts(tmp_path: Path) -> None:
    """ROCm/aiter e4048607, fused_moe.py; without the architecture as older releases have it."""
    plain, enum = "'ActivationType.Silu'", "<ActivationType.Silu: 0>"
    asked = read(
        tmp_path,
        f"[aiter] [fused_moe] using 1stage default for ('gfx942', 304, {EXPERTS.format(plain)} ",
        f"[aiter] [fused_moe] using 2stage default for ('gfx942', 304, {EXPERTS.format(enum)} ",
        f"[fused_moe] no tuned FlyDSL config for ('gfx942', 304, {EXPERTS.format(enum)}, using x",
        "[aiter] [fused_moe] using 2stage (kernelName1='a', kernelName2='b') for "
        f"(80, {EXPERTS.format(plain)}",
        "[fused_moe] using 2stage default for (80, 1, 2)",
        "[fused_moe] discarding Opus tuned config for (80, 1)",
    )
    with_arch, without = sorted(asked.tallies, key=lambda ask: not ask.device.arch)
    assert (with_arch.op, with_arch.key, with_arch.device) == (
        "fused_moe",
        FUSED,
        TableDevice("gfx942", 304),
    )
    assert (without.key, without.device) == (FUSED, TableDevice(units=80))
    first, second = asked.tallies[with_arch], asked.tallies[without]
    assert (first.missed, first.noted, first.times) == (2, 1, 2)
    assert second.found == 1
    assert second.way == "2stage (kernelName1='a', kernelName2='b')"


@pytest.mark.parametrize("stretch", range(600, 900, 25))
def test_a_line_that_goes_on_in_the_next_piece_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(lookups, "_STRETCH", stretch)
    start, _, end = EXPERTS.format("'ActivationType.Silu'").partition(", 8, ")
    line = f"[aiter] [fused_moe] using 1stage default for ('gfx942', 304, {start},\n  8, {end} "
    ask, tally = only(tmp_path, *[line] * 20)
    assert (ask.key, tally.times) == (FUSED, 20)


MI = "device_name=AMD_Instinct_MI300X"


@pytest.mark.parametrize(
    ("line", "key", "missed", "way"),
    [
        (
            "WARNING 05-03 [fused_moe.py:668] Using default MoE config. Performance might be "
            f"sub-optimal! Config file not found at /v/E=16,N=1536,{MI},dtype=fp8_w8a8.json",
            (("E", "16"), ("N", "1536"), ("dtype", "fp8_w8a8")),
            True,
            "default config",
        ),
        (
            f"WARNING Config file not found at ['/t/E=16,N=8,{MI}.json', '/v/E=16,N=8,{MI}.json']",
            (("E", "16"), ("N", "8")),
            True,
            "default config",
        ),
        (
            f"Using configuration from /v/E=16,N=8,{MI}.json for MoE layer.",
            (("E", "16"), ("N", "8")),
            False,
            "",
        ),
        (
            "Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config "
            f"file not found at /v/N=512,K=64,{MI},dtype=fp8_w8a8,block_shape=[128,128].json",
            (("N", "512"), ("K", "64"), ("dtype", "fp8_w8a8"), ("block_shape", "[128,128]")),
            True,
            "default config",
        ),
        (
            "Using default MoE kernel config. Performance might be sub-optimal! Config file not "
            f"found at /s/triton_3_4_0/E=16,N=8,{MI}.json, you can create them with https://x",
            (("E", "16"), ("N", "8")),
            True,
            "default config",
        ),
        (
            f"Config file not found at /s/triton_3_4_0/E=16,N=8,{MI}.json. Fallback to triton "
            f"version 3.2.0 and use MoE kernel config from /s/triton_3_2_0/E=16,N=8,{MI}.json. "
            "Performance might be sub-optimal!",
            (("E", "16"), ("N", "8")),
            True,
            "the file of Triton 3.2.0",
        ),
        (
            f"Down MoE config file not found at /s/E=16,N=8,{MI}_down.json; reusing the tuned "
            "up-projection config without TMA. Performance might be sub-optimal.",
            (("E", "16"), ("N", "8"), ("projection", "down")),
            True,
            "the file of the first product",
        ),
        (
            f"Using MoE kernel config from /s/E=16,N=8,{MI},block_shape=[128, 128].json.",
            (("E", "16"), ("N", "8"), ("block_shape", "[128, 128]")),
            False,
            "",
        ),
    ],
)
def test_servers_look_for_files(
    tmp_path: Path, line: str, key: tuple[tuple[str, str], ...], missed: bool, way: str
) -> None:
    """vLLM 0.33.0: fused_moe.py, fp8_utils.py; SGLang 0.5.23: fused_moe_triton_config.py."""
    ask, tally = only(tmp_path, line)
    assert (ask.tuner, ask.key, ask.device.name) == ("moe", key, "AMD_Instinct_MI300X")
    assert (tally.missed, tally.found, tally.way) == (missed, not missed, way)


def test_tunableop_tells_each_look_up(tmp_path: Path) -> None:
    """PyTorch, aten/src/ATen/cuda/tunable: Tunable.cpp and TunableOp.h; the last line is of 2.3."""
    op, params = "GemmTunableOp_BFloat16_TN", "tn_4096_16_1024_ld_1024_1024_4096"
    asked = read(
        tmp_path,
        f"missing params_signature, returning null ResultEntry for {op},{params}",
        f"finding fastest for {op}({params}) out of 1068 candidates",
        f"└──found fastest for {op}({params}) Gemm_Hipblaslt_1104",
        f"ResultEntry found for {op},{params}",
        f"ResultEntry found for {op},{params}",
        "finding fastest for onnxruntime::GemmOp(NN_512) out of 3 candidates",
        "missing op_signature, returning null ResultEntry",
    )
    ((ask, tally),) = asked.tallies.items()
    assert (ask.op, ask.key) == (op, (("params", params),))
    assert (tally.missed, tally.found, tally.times) == (1, 2, 3)
    assert tally.way == "tuned then: Gemm_Hipblaslt_1104"
    assert asked.nameless == {"tunableop": 1}


def test_notes_alone_count_as_one_question(tmp_path: Path) -> None:
    op, params = "GemmTunableOp_BFloat16_TN", "tn_4096_16_1024_ld_1024_1024_4096"
    _, tally = only(
        tmp_path,
        f"finding fastest for {op}({params}) out of 1068 candidates",
        f"└──found fastest for {op}({params}) Gemm_Hipblaslt_1104",
    )
    assert (tally.noted, tally.times) == (2, 1)


def test_misses_of_hipblaslt_have_no_name(tmp_path: Path) -> None:
    who = "[2026-09-21 14:03:11][hipblaslt][Info][problem_override_from_file] "
    asked = read(
        tmp_path,
        f"{who}No valid solution index found in override file.",
        f"{who}Find solution with index: 218160",
        f"{who}No valid entries found in override file.",
        f"{who}tuning-cache: cache-hit index=218160",
        f"{who}tuning-cache: cache-miss, no valid entry for this problem",
    )
    assert not asked.tallies and asked.nameless == {"hipblaslt": 3}
    (note,) = cover_notes(cover(asked, []), 0)
    assert note.startswith("3 misses of hipBLASLt without a name: with HIPBLASLT_LOG_MASK=40")


def test_a_call_of_hipblaslt_is_kept_as_its_benchmark_makes_it(tmp_path: Path) -> None:
    ask, tally = only(
        tmp_path,
        f"{CALL} --algo_method index --solution_index 218160 --activation_type none ",
        "see hipblaslt-bench --help",
    )
    assert dict(ask.key)["transB"] == "T"
    assert dict(ask.key)["c_type"] == "bf16_r"
    assert (tally.untold, tally.way) == (1, "solution 218160")
    assert tally.call == f"{CALL} --activation_type none"


def test_a_call_with_words_for_a_shell_is_none(tmp_path: Path) -> None:
    (tally,) = read(tmp_path, f"{CALL} ; rm -rf $HOME `x`").tallies.values()
    assert tally.call == CALL


def test_several_lines_in_one_and_lines_across_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (
        "shape is M:64, N:1536, K:7168, not found tuned config in /c/a8w8_blockscale_tuned_gemm.csv"
        ", will use default config!"
    )
    monkeypatch.setattr("rocm_tui.ingest.lookups._STRETCH", 1000)
    (tally,) = read(tmp_path, f"{line} {line}", *[f"{'x' * 60} {line}"] * 100).tallies.values()
    assert tally.missed == 102


def test_a_line_without_end_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.ingest.lookups._STRETCH", 20_000)
    found = "ResultEntry found for GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64 "
    (tally,) = read(tmp_path, ("." * 990 + found) * 300).tallies.values()
    assert tally.found == 300


MISS = (
    f"[aiter] shape is M:1, N:32, K:4096 {TYPED}, not found tuned config in "
    "/tmp/aiter_configs/bf16_tuned_gemm.csv, will use default config! using torch solution:0"
)
EXPERT_MISS = f"[fused_moe] using 2stage default for ('gfx942', 304, {EXPERTS.format('x')}"


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda line: json.dumps({"log": f"\x1b[36m{line}\x1b[0m\n", "time": "10:11:12"}),
        lambda line: json.dumps({"log": json.dumps({"m": line})}),
        lambda line: f'time=10:11:12 msg="{line}" level=info',
        lambda line: f"#033[36m{line}#033[0m",
        lambda line: f"^[[36m{line}^[[0m",
    ],
    ids=["json", "json in json", "logfmt", "rsyslog", "cat -v"],
)
def test_a_miss_is_read_in_any_wrapper(tmp_path: Path, wrapped: Callable[[str], str]) -> None:
    ask, tally = only(tmp_path, wrapped(MISS))
    assert (ask.key, tally.missed, tally.way) == (BF16, 1, "torch, solution 0")
    assert tally.table == "/tmp/aiter_configs/bf16_tuned_gemm.csv"
    ask, tally = only(tmp_path, wrapped(EXPERT_MISS))
    assert (tally.missed, tally.way) == (1, "2stage default")


def test_hostile_lines_are_nothing(tmp_path: Path) -> None:
    asked = read(
        tmp_path,
        "not found tuned config in ",
        "shape is M:1, N:2, not found tuned config in x, ",
        "shape is M:" + "9" * 400 + ", N:1, K:1, not found tuned config in x, ",
        " is tuned",
        "[fused_moe] using 1stage default for (" + ", " * 200 + ")",
        "Config file not found at E=,N=,device_name=.json",
        "Config file not found at /" + "a" * 5000,
        "ResultEntry found for \x1b]0;title\x07,tn_1",
        "hipblaslt-bench -m -n -k",
    )
    assert asked.tallies == {}


def test_products_of_float32_differ_by_their_precision() -> None:
    def key(dtype: str, precision: str | None) -> object:
        shapes, strides = ((64, 32), (32, 16)), ((32, 1), (16, 1))
        return product_key(Problem("mm", shapes, strides, (dtype,) * 2, "cuda", precision))

    single, half = "torch.float32", "torch.float16"
    assert key(single, None) == key(single, "highest") != key(single, "high")
    assert key(half, "highest") == key(half, "high") is not None


SHAPE = "[aiter] shape is M:8192, N:32, K:6144 "
FACTS = "dtype='torch.bfloat16' otype='torch.bfloat16' bias=False, scaleAB=False, "
REST = "bpreshuffle=False, not found tuned config in"
FILE = "/tmp/aiter_configs/bf16_tuned_gemm.csv, will use default config!"
USED = "using torch solution:0"
PREFIX = "(EngineCore pid=7) "
BROKEN = {
    "behind in": [SHAPE + FACTS + REST, "        " + FILE, "        " + USED],
    "with a blank behind in": [SHAPE + FACTS + REST + " ", "\t\t" + FILE + " " + USED],
    "in the facts": [SHAPE + FACTS, "        " + REST + " " + FILE, "        " + USED],
    "behind the sizes": [SHAPE, "    " + FACTS + REST + " " + FILE + " " + USED],
    "behind a name of a process": [
        PREFIX + SHAPE + FACTS + REST,
        PREFIX + "   " + FILE + " " + USED,
    ],
    "in colours": [
        f"\x1b[36m(W pid=1)\x1b[0m {SHAPE}{FACTS}{REST}\x1b[0m",
        f"\x1b[36m(W pid=1)\x1b[0m     {FILE} {USED}\x1b[0m",
    ],
}


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", [0, 100, 300, 420])
def test_a_miss_on_several_lines(
    tmp_path: Path, lines: list[str], end: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a stretch of the file ends."""
    monkeypatch.setattr("rocm_tui.ingest.lookups._STRETCH", 400)
    log = tmp_path / "server.log"
    text = end.join(("x" * before, *lines, "INFO ready", "INFO " + "y" * 500, ""))
    log.write_bytes(text.encode())
    asked = Lookups()
    read_lookups(log, asked)
    ((ask, tally),) = asked.tallies.items()
    told = dict(ask.key)
    assert (ask.op, told["M"], told["bpreshuffle"]) == ("gemm_a16w16", "8192", "False")
    assert (tally.missed, tally.way) == (1, "torch, solution 0")
    assert tally.table == "/tmp/aiter_configs/bf16_tuned_gemm.csv"


def test_a_miss_whose_next_line_is_another_program_s_is_one_all_the_same(tmp_path: Path) -> None:
    line = "[aiter] shape is M:64, N:1536, K:7168, not found tuned config in"
    ask, tally = only(tmp_path, line, "INFO ready", "        /tmp/a8w8_tuned_gemm.csv, will use")
    assert (ask.op, ask.key) == ("gemm", SIZES)
    assert (tally.missed, tally.table, tally.way) == (1, "", "default config")


def test_what_follows_a_miss_tells_nothing_of_its_types(tmp_path: Path) -> None:
    line = "shape is M:64, N:1536, K:7168, not found tuned config in /c/a8w8_tuned_gemm.csv, will"
    ask, tally = only(tmp_path, line, f"    {FACTS}{REST}", "    q_dtype_w:torch.int8")
    assert (ask.op, ask.key, tally.missed) == ("gemm_a8w8", SIZES, 1)


RAY = "\x1b[32m [repeated {}x across cluster]\x1b[0m"
ADVICE = " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication)"


@pytest.mark.parametrize(
    ("suffix", "times"),
    [
        (RAY.format(7), 7),
        (RAY.format(2) + ADVICE, 2),
        (" [repeated 120x across cluster]", 120),
        (" [repeated 0x across cluster]", 1),
        (" [repeated 9999999x across cluster]", 1),
        (" [repeated x across cluster]", 1),
    ],
)
def test_lines_that_ray_counts(tmp_path: Path, suffix: str, times: int) -> None:
    """ray._private.ray_logging 2.x: it compares lines without their words with digits."""
    op, params = "GemmTunableOp_BFloat16_TN", "tn_4096_16_1024_ld_1024_1024_4096"
    lines = (
        "[aiter] shape is M:64, N:1536, K:7168, not found tuned config in /c/a8w8_tuned_gemm.csv, "
        "will use default config!",
        f"[aiter] [fused_moe] using 2stage default for ('gfx942', 304, {EXPERTS.format('Silu')}",
        f"Config file not found at /v/E=16,N=8,{MI}.json",
        f"missing params_signature, returning null ResultEntry for {op},{params}",
        f"ResultEntry found for {op},{params}",
        CALL,
    )
    asked = read(tmp_path, *(f"\x1b[36m(W pid=11)\x1b[0m {line}{suffix}" for line in lines))
    assert [tally.times for tally in asked.tallies.values()] == [
        times,
        times,
        times,
        2 * times,
        times,
    ]
    assert asked.repeated == (times - 1) * len(lines)
    nameless = read(tmp_path, f"missing op_signature, returning null ResultEntry{suffix}")
    assert nameless.nameless == {"tunableop": times}
    notes = cover_notes(cover(asked, []), 0)
    assert any("RAY_DEDUP_LOGS=0" in note for note in notes) is (times > 1)


CONVOLUTION = "3-224-224-7x7-64-112-112-16-3x3-2x2-1x1-0-NCHW-FP32-F"


def test_miopen_names_the_problems_that_it_looks_for(tmp_path: Path) -> None:
    """MIOpen 2.0 to 3.5 with MIOPEN_LOG_LEVEL=6; that of 2.20 has no file where the key is new."""
    other = CONVOLUTION.replace("FP32-F", "FP16-B")
    user = 'in cache for file "C:\\\\Users\\\\x\\\\gfx1201_32.HIP.3_4_1_76e3cde91.ufdb.txt"'
    asked = read(
        tmp_path,
        f"MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key {CONVOLUTION} {user}",
        f"MIOpen: Info2 [FindRecordUnsafe] Looking for key {CONVOLUTION} {user}",
        f"MIOpen(HIP): Info2 [FindRecord] Looking for key {other} in file /o/gfx1201_32.fdb.txt",
        f"MIOpen(HIP): Info2 [FindRecord] Key match: {other}",
        "MIOpen(HIP): Info2 [FindRecord] Looking for key abcdefghijklmnopqrstuvwxyz in file x",
        "MIOpen(HIP): Info [TryLoad] Find-db regenerating.",
        "MIOpen(HIP): Info [FindSolutionImpl] Perf Db: record not found for: ConvAsm1x1U",
    )
    tallies = {(ask.op, *ask.key): tally for ask, tally in asked.tallies.items()}
    first = tallies.pop(("convolution", ("problem", CONVOLUTION)))
    ((key, second),) = tallies.items()
    assert key == ("convolution_bwd_input", ("problem", other))
    assert (first.times, first.matched, second.times, second.matched) == (2, 0, 1, 1)
    assert asked.devices == {TableDevice("gfx1201", 32)} and "gfx1201_32.HIP" in first.table
    assert asked.nameless == {"miopen": 2}
    assert "MIOPEN_LOG_LEVEL=6" in cover_notes(cover(asked, []), 0)[-1]

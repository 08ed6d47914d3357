"""`tune --from-log` of other tuners' files, logs of hipBLASLt and exports: each product once, with
how often it is asked for, for one device and for a fleet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.model.problem import Problem
from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from rocm_tui.actions.untuned import Told, with_told
from rocm_tui.cli.entry import main
from rocm_tui.fleet.units import Asked
from rocm_tui.ingest.untuned import Asks

INPUTS = (
    "[('cuda', 'torch.bfloat16', 16, 1024, 1024, 1, 0), "
    "('cuda', 'torch.bfloat16', 1024, 4096, 1, 1024, 0)]"
)
SAME = "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
OTHER = "GemmAndBiasTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
FP8 = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_1_1_1_ld_1_1_1\n"
AITER = (
    "M,N,K,bias,dtype,outdtype,scaleAB\n16,4096,1024,False,torch.bfloat16,torch.bfloat16,False\n"
)
BLOCK = """AUTOTUNE addmm(16x4096, 16x1024, 1024x4096)
strides: [0, 1], [1024, 1], [1, 1024]
dtypes: torch.bfloat16, torch.bfloat16, torch.bfloat16
  addmm 0.0100 ms 100.0%
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 1 choices
"""  # noqa: E501
CALL = (
    "hipblaslt-bench --api_method c -m 4096 -n 16 -k 1024 --lda 1024 --ldb 1024 --ldc 4096 "
    "--transA T --transB N --batch_count 1 --a_type bf16_r --b_type bf16_r --c_type bf16_r "
    "--d_type bf16_r --compute_type f32_r\n"
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pin = SharedPin(
        "mm", INPUTS, "highest", "mm-1", "mm", Machine(), {}, {"highest": {"mm-1": 1.0}}
    )
    kernel = SharedPin("triton", "[]", "", "triton_config-1", "c", Machine())
    texts = {
        "rank0.csv": SAME + OTHER + FP8,
        "untuned1.csv": "Validator,PT_VERSION,2.13.0\n" + SAME,
        "aiter.csv": AITER,
        "train.log": BLOCK + CALL + CALL,
        "pins.json": share_text(PinExport((pin,))),
        "kernels.json": share_text(PinExport((kernel, pin))),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def dry(
    files: Path, names: Sequence[str], capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any], str]:
    logs = [word for name in names for word in ("--from-log", str(files / name))]
    code = main(["tune", "--dry-run", "--json", "--cache-dir", str(files), *logs, *words])
    said = capsys.readouterr()
    return code, json.loads(said.out or "{}"), said.err


def test_ranks_ask_for_one_product(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, errors = dry(files, ["rank0.csv", "untuned1.csv", "aiter.csv"], capsys)
    assert code == 0
    assert [(one["op"], one["calls"]) for one in found["problems"]] == [("mm", 3), ("addmm", 1)]
    assert found["problems"][0]["strides"] == [[1024, 1], [1, 1024]]
    assert errors.count("\n") == 1
    assert "rank0.csv: 1 of 3 products left out: 1 × an fp8 product without its scales" in errors


def test_a_log_of_two_speakers(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inductor's tuning and hipBLASLt's calls; the tuning takes the calls of the same product."""
    code, found, _ = dry(files, ["train.log", "rank0.csv"], capsys)
    told, called = found["problems"]
    assert code == 0 and told["op"] == "addmm" and told["strides"][0] == [0, 1]
    assert (told["calls"], called["op"], called["calls"]) == (1, "mm", 3)


def test_an_export_has_its_keys(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, errors = dry(files, ["pins.json", "rank0.csv", "kernels.json"], capsys)
    first = found["problems"][0]
    assert code == 0 and (first["inputs"], first["calls"]) == (INPUTS, 3)
    assert "kernels.json: 1 of 2 products left out" in errors
    (files / "pins.json").write_text('{"format": "rocm-tui pins", "version": 99}')
    code, _, errors = dry(files, ["pins.json"], capsys)
    assert code == 1 and errors.count("\n") == 1 and "pins.json" in errors


def test_one_of_them_by_its_id(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tune", "--dry-run", "--cache-dir", str(files), "--from-log", str(files / "rank0.csv")])
    first, second = capsys.readouterr().out.splitlines()
    assert "requested 1 time" in first
    code, found, _ = dry(files, ["rank0.csv"], capsys, second.split()[0])
    assert code == 0 and [one["op"] for one in found["problems"]] == ["addmm"]
    code, _, errors = dry(files, ["rank0.csv"], capsys, "fffffff")
    assert code == 1 and "fffffff" in errors


def test_a_fleet_begins_with_what_is_asked_for_most(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = dry(files, ["rank0.csv", "untuned1.csv"], capsys, "--fleet", "local:2")
    told = [(unit["title"].split()[0], unit["calls"]) for unit in found["units"]]
    assert code == 0 and told == [("mm", 2.0), ("addmm", 1.0)]
    assert dry(files, ["missing.csv"], capsys)[0] == 1
    only = files / "only.csv"
    only.write_text(FP8)
    assert dry(files, ["only.csv"], capsys)[0] == 1


# The same product of different sources


def problem(op: str = "mm", **more: Any) -> Problem:
    given = {
        "shapes": ((4, 8), (8, 16)), "strides": ((8, 1), (16, 1)),
        "dtypes": ("torch.bfloat16",) * 2, "device": "cuda", **more,
    }  # fmt: skip
    return Problem(op, **given)


def asked(one: Problem, calls: float = 0.0) -> Asked:
    return Asked(one, False, "", None, calls)


def merged(rows: Sequence[Problem], *files: Sequence[tuple[Problem, int]]) -> list[Asked]:
    told = []
    for file in files:
        asks = Asks()
        for one, calls in file:
            asks.add(one, calls)
        told.append(Told("file", asks, False))
    return with_told([asked(row) for row in rows], told, asked)


def test_calls_of_a_product_in_files_are_those_of_its_first_row() -> None:
    found = merged([problem(), problem("bmm"), problem()], [(problem(), 3)], [(problem(), 4)])
    assert [(row.problem.op, row.calls) for row in found] == [("mm", 7), ("bmm", 0), ("mm", 0)]


def test_products_of_files_alone_come_last_the_most_requested_first() -> None:
    few, many = problem(shapes=((1, 8), (8, 16))), problem(shapes=((2, 8), (8, 16)))
    found = merged([problem()], [(few, 3), (many, 2)], [(many, 2)])
    assert [(row.problem.shapes[0][0], row.calls) for row in found] == [(4, 0), (2, 4), (1, 3)]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"precision": "high"}, True),
        ({"device": "cuda:1"}, True),
        ({"device": "cpu"}, False),
        ({"threads": 3}, False),
        ({"strides": ((1, 4), (16, 1))}, False),
        ({"shapes": ((5, 8), (8, 16))}, False),
        ({"dtypes": ("torch.float16",) * 2}, False),
        ({"options": (("beta", (2,)),)}, False),
        ({"strides": ()}, False),
    ],
)
def test_which_products_are_the_same(change: dict[str, Any], same: bool) -> None:
    found = merged([problem()], [(problem(**change), 2)])
    assert (len(found) == 1) is same and found[0].calls == (2 if same else 0)


def test_a_precision_is_that_of_float32_products() -> None:
    single = {"dtypes": ("torch.float32",) * 2}
    rows = [problem(**single, precision="highest")]
    assert len(merged(rows, [(problem(**single), 2)])) == 1
    assert len(merged(rows, [(problem(**single, precision="high"), 2)])) == 2


def test_a_bias_may_be_expanded_over_the_rows() -> None:
    def addmm(bias: tuple[int, ...], steps: tuple[int, ...]) -> Problem:
        return problem(
            "addmm", shapes=(bias, (4, 8), (8, 16)), strides=(steps, (8, 1), (16, 1)),
            dtypes=("torch.bfloat16",) * 3,
        )  # fmt: skip

    assert len(merged([addmm((16,), (1,))], [(addmm((4, 16), (0, 1)), 1)])) == 1
    assert len(merged([addmm((16,), (1,))], [(addmm((4, 16), (16, 1)), 1)])) == 2

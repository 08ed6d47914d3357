"""The list that `cover` writes, read by PyTorch's own reader of untuned files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import tunable

from rocm_tui.cli.entry import main

ASKED = (
    "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096",
    "GemmTunableOp_Half_NN,nn_64_8_32_ld_64_32_64",
    "GemmAndBiasTunableOp_Half_TN,tn_768_1024_512_ld_512_512_768",
    "GemmStridedBatchedTunableOp_float_NN,nn_64_32_16_B_8_ld_64_16_64",
)


class _Built(Exception):
    """What the reader makes of a line: sizes m, n, k, transposed or not, and the type."""


def test_pytorch_reads_the_written_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but building the matrices, which are made on a GPU, is PyTorch's."""
    log, untuned = tmp_path / "a.log", tmp_path / "tunableop_untuned0.csv"
    log.write_text(
        "".join(
            f"missing params_signature, returning null ResultEntry for {line}\n" * (4 - at)
            for at, line in enumerate(ASKED)
        )
    )
    assert main(["cover", str(log), "--write", str(untuned)]) == 1
    gather = tunable._gather_unique_untuned_gemm_from_files  # type: ignore[attr-defined]
    assert gather(str(untuned)) == {f"{line}\n" for line in ASKED}

    def built(*args: Any, **_: Any) -> None:
        raise _Built(*args)

    for name in ("_create_matrices", "_create_batch_matrices"):
        monkeypatch.setattr(tunable, name, built)
    made = []
    lines = untuned.read_text().splitlines(keepends=True)
    assert [line.strip() for line in lines] == list(ASKED)
    for line in (line for line in lines if "Bias" not in line):  # whose vector it makes first
        with pytest.raises(_Built) as caught:
            tunable._process_single_offline_gemm(line, 0)  # type: ignore[attr-defined]
        made.append(caught.value.args)
    gemm, other, batch = made
    assert gemm == (16, 4096, 1024, 1024, 1024, 4096, False, True, torch.bfloat16, "cuda:0")
    assert other[:3] == (8, 64, 32)
    assert batch[:4] == (32, 64, 16, 8)

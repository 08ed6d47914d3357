"""What PyTorch's own Python makes of a table with a pinned row: `torch.cuda.tunable` brings the
tables of several processes together, and builds the products of untuned ones. Its C++ reader needs
a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.cli.entry import main

pytestmark = pytest.mark.torch

ROWS = (
    "Validator,PT_VERSION,2.13.0\n"
    "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
    "GemmTunableOp_Half_TN,tn_32_64_128_ld_128_128_32,Gemm_Hipblaslt_12683,0.182\n"
    "GemmTunableOp_Half_TN,tn_64_64_64_ld_64_64_64,Default,0.01\n"
)


def test_a_pinned_row_is_brought_together_with_those_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.cuda import tunable

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PYTORCH_TUNABLEOP_FILENAME", "results%d.csv")
    monkeypatch.setattr(tunable, "get_filename", lambda: "")  # asks the GPU's library
    Path("results0.csv").write_text(ROWS)
    Path("results1.csv").write_text(ROWS.replace("tn_32_64", "tn_96_64"))
    assert main(["pin", "results0.csv:3", "Gemm_Rocblas_-7"]) == 0
    tunable._gather_tunableop_results()
    rows = Path("results_full0.csv").read_text().splitlines()
    assert rows[:2] == ROWS.splitlines()[:2]
    assert sorted(rows[2:]) == [
        "GemmTunableOp_Half_TN,tn_32_64_128_ld_128_128_32,Gemm_Rocblas_-7,nan",
        "GemmTunableOp_Half_TN,tn_64_64_64_ld_64_64_64,Default,0.01",
        "GemmTunableOp_Half_TN,tn_96_64_128_ld_128_128_32,Gemm_Hipblaslt_12683,0.182",
    ]
    assert main(["unpin", "--all"]) == 0
    assert Path("results0.csv").read_text() == ROWS

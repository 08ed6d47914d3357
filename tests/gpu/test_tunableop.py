"""`tune --tunableop` on a GPU: two products tuned, the table read by PyTorch's own reader in C++,
and a pinned row taken.

Skipped where torch sees no GPU. PyTorch for CUDA has one candidate,
`Default`; on ROCm there are hundreds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main

pytestmark = pytest.mark.torch

UNTUNED = (
    "GemmTunableOp_Half_NN,nn_256_64_512_ld_256_512_256",
    "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096",
)
READ = """
import json, sys
import torch
import torch.cuda.tunable as tunable
torch.zeros(1, device="cuda")
tunable.enable()
tunable.tuning_enable(False)
tunable.set_filename(sys.argv[1], False)
left = torch.randn(64, 512, device="cuda", dtype=torch.half)
right = torch.randn(512, 256, device="cuda", dtype=torch.half)
left @ right
torch.cuda.synchronize()
print("\\n" + json.dumps([list(row) for row in tunable.get_results()]))
"""


def read(table: str) -> tuple[dict[str, str], str]:
    """The solutions that PyTorch has of the table, by product; what it says meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", READ, table],
        env={**os.environ, "PYTORCH_TUNABLEOP_VERBOSE": "3"},
        text=True, timeout=300, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    rows = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("[["))
    return {f"{op},{params}": solution for op, params, solution, _ in rows}, done.stdout


def test_two_products_are_tuned_read_and_a_pinned_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    Path("untuned.csv").write_text("".join(f"{line}\n" for line in UNTUNED))
    assert main(["tune", "untuned.csv", "--tunableop", "-o", "results0.csv", "--json"]) == 0
    told = {f"{row['op']},{row['params']}" for row in json.loads(capsys.readouterr().out)["rows"]}
    assert told == set(UNTUNED)
    solutions, _ = read("results0.csv")
    assert solutions.keys() == told

    text = Path("results0.csv").read_bytes()
    assert main(["tune", "untuned.csv", "--tunableop", "-o", "results0.csv"]) == 0
    assert Path("results0.csv").read_bytes() == text

    line = next(at for at, row in enumerate(text.decode().split("\n"), 1) if UNTUNED[0] in row)
    assert main(["pin", f"results0.csv:{line}", "Default"]) == 0
    solutions, said = read("results0.csv")
    assert solutions[UNTUNED[0]] == "Default"
    assert f"ResultEntry found for {UNTUNED[0]}" in said

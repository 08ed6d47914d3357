"""A lookup table made of a pin, and taken by Inductor on a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.torch_models import child_env, tui

# On a GPU

PROGRAM = """
import json, sys, torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN,TRITON"
if sys.argv[1:]:
    from torch._inductor.lookup_table import LookupTableChoices
    from torch._inductor.virtualized import V
    config.lookup_table.table = json.load(open(sys.argv[1]))
    V.set_choices_handler(LookupTableChoices())
torch.manual_seed(0)
def randn(*sizes):
    return torch.randn(*sizes, device="cuda", dtype=torch.float16)
forms = {
    "mm": (torch.mm, randn(512, 1024), randn(1024, 768)),
    "bmm": (torch.bmm, randn(4, 256, 512), randn(4, 512, 384)),
    "addmm": (torch.addmm, randn(640), randn(512, 1024), randn(1024, 640)),
    "baddbmm": (torch.baddbmm, randn(4, 256, 320), randn(4, 256, 512), randn(4, 512, 320)),
    "other": (torch.mm, randn(512, 1024), randn(1024, 512)),
}
for name, (function, *inputs) in forms.items():
    if name == "other" and not sys.argv[1:]:
        continue
    torch._dynamo.reset()
    print("#### autotuning of", name, file=sys.stderr, flush=True)
    out, codes = run_and_get_code(torch.compile(lambda *x: function(*x)), *inputs)
    exact = function(*(x.double() for x in inputs))
    assert (out.double() - exact).abs().max().item() < 0.5
    print("#### code of", name, "\\n", *codes, flush=True)
"""


def run_on_gpu(root: Path, *table: str) -> tuple[dict[str, str], dict[str, str]]:
    """The generated code of each form, and what was printed while it was tuned."""
    program = root.parent / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, "-W", "ignore", str(program), *table]
    if not table:
        words = [sys.executable, "-m", "rocm_tui", "run", "--", *words]
    done = subprocess.run(words, env=child_env(root), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return _parts(done.stdout, "code"), _parts(done.stderr, "autotuning")


def _parts(text: str, what: str) -> dict[str, str]:
    parts = [part.partition("\n") for part in text.split(f"#### {what} of ")[1:]]
    return {name.strip(): body for name, _, body in parts}


@pytest.mark.torch
def test_inductor_takes_it_on_a_gpu(tmp_path: Path) -> None:
    """Slow choices are pinned, then a fresh cache dir has nothing but the table. It has run on an
    NVIDIA H200 with torch 2.11; never yet on AMD."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    tuned, table = tmp_path / "tuned", tmp_path / "table.json"
    run_on_gpu(tuned)
    rows = json.loads(tui(tuned, "ls", "--json").stdout)["tunings"]
    pinned = {}
    for row in rows:
        kind = "baddbmm" if row["op"] == "baddbmm" else "triton_"
        pinned[row["op"]] = [c for c in row["choices"] if c["ms"] and c["name"].startswith(kind)][
            -1
        ]
        tui(tuned, "pin", row["id"], pinned[row["op"]]["hash"])
    assert set(pinned) == {"mm", "bmm", "addmm", "baddbmm"}
    said = tui(tuned, "export", "--lookup-table", "-o", str(table)).stderr
    assert said.count("\n") == 1 and "ATen's choices of addmm apart" in said
    code, printed = run_on_gpu(tmp_path / "fresh", str(table))
    assert "AUTOTUNE" not in printed["mm"] + printed["bmm"] + printed["baddbmm"]
    for op in ("mm", "bmm"):
        assert calls(code[op], pinned[op]["config"])
    assert "extern_kernels.baddbmm(" in code["baddbmm"]
    assert "AUTOTUNE mm(512x1024, 1024x512)" in printed["other"]
    if "AUTOTUNE" in printed["addmm"]:
        rivals = re.findall(r"^  (\w+) [\d.]+ ms", printed["addmm"], re.MULTILINE)
        assert len([name for name in rivals if name.startswith("triton")]) == 1
    else:  # torch 2.11
        assert calls(code["addmm"], pinned["addmm"]["config"])


def calls(code: str, config: dict[str, str]) -> bool:
    """Whether the code has a Triton template with these block sizes and warps."""
    blocks = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
    wanted = [f"{name} : tl.constexpr = {config[name]}\n" for name in blocks]
    wanted += [f"{name}={config[name]}," for name in ("num_warps", "num_stages")]
    return "triton_tem_" in code and all(text in code for text in wanted)

"""The main job on a GPU: Triton choices of stock PyTorch pinned, proved and taken back.

Skipped where torch sees no GPU. It has run on an NVIDIA H200 with torch 2.11; never yet on AMD.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.model.origin import kind_of
from backend.pins.graphs.parts import ChoiceSources
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PROGRAM = """
import sys, torch
from torch._inductor.utils import run_and_get_code
torch.manual_seed(0)
a, b = (torch.randn(1024, 1024, device="cuda", dtype=torch.float16) for _ in "ab")
forms = {"plain": lambda a, b: a @ b, "fused": lambda a, b: torch.relu(a @ b)}
form = forms[sys.argv[1]]
compiled = torch.compile(form, mode="max-autotune-no-cudagraphs")
out, codes = run_and_get_code(compiled, a, b)
error = (out.float() - form(a.double(), b.double()).float()).abs().max().item()
assert error < 0.5, error
print("\\n".join(codes))
"""


def tui(cache: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def run(cache: Path, form: str, *, recorded: bool = False) -> str:
    """The generated code, under stock PyTorch unless it is to be recorded."""
    program = cache.parent / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, "-W", "ignore", str(program), form]
    if recorded:
        return tui(cache, "run", "--", *words)
    done = subprocess.run(words, env=child_env(cache), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def tuning(cache: Path) -> dict[str, Any]:
    rows = json.loads(tui(cache, "ls", "--json"))["tunings"]
    (found,) = [row for row in rows if row["op"] == "mm"]
    return found


def calls(code: str, choice: dict[str, Any]) -> bool:
    """Whether the code calls the choice: ATen by name, Triton by its block sizes and warps."""
    if choice["name"] == "mm":
        return "extern_kernels.mm(" in code
    config = choice["config"]
    wanted = [f"{key} : tl.constexpr = {config[key]}" for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K")]
    wanted += [f"num_warps={config['num_warps']}", f"num_stages={config['num_stages']}"]
    return "triton_tem_" in code and all(text in code for text in wanted)


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_pins_on_a_gpu(tmp_path: Path, form: str) -> None:
    cache = tmp_path / "cache"
    run(cache, form, recorded=True)
    row = tuning(cache)
    timed = [choice for choice in row["choices"] if choice["ms"] is not None]
    assert len(timed) > 3
    (path,) = (cache / "cache").iterdir()
    before, code = path.read_bytes(), run(cache, form)
    triton = [choice for choice in timed if choice["name"].startswith("triton_mm")]
    aten = [choice for choice in timed if choice["name"] == "mm"]
    for choice in (triton[2], *aten, triton[-1]):
        tui(cache, "pin", row["id"], choice["hash"])
        for _ in range(2):
            assert calls(run(cache, form), choice), choice
        assert choice["name"] in tui(cache, "verify")
    tui(cache, "unpin", "--all")
    assert path.read_bytes() == before
    assert comparable(run(cache, form)) == comparable(code)
    assert path.read_bytes() == before


ATTENTION = """
import sys, torch
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import flex_attention
torch.manual_seed(0)
q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
form = torch.compile(lambda q, k, v: flex_attention(q, k, v), mode="max-autotune-no-cudagraphs")
print("\\n".join(run_and_get_code(form, q, k, v)[1]))
"""


def test_a_pin_of_flex_attention_that_no_session_recorded(tmp_path: Path) -> None:
    """Stock PyTorch alone: the choices are told apart by the modules that timed them."""
    cache, program = tmp_path / "cache", tmp_path / "attention.py"
    program.write_text(ATTENTION)

    def code() -> str:
        words = [sys.executable, "-W", "ignore", str(program)]
        done = subprocess.run(
            words, env=child_env(cache), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    first = code()
    rows = json.loads(tui(cache, "ls", "--json"))["tunings"]
    (row,) = [row for row in rows if row["op"] == "flex_attention"]
    timed = sorted((c["ms"], c["hash"]) for c in row["choices"] if c["ms"] is not None)
    sources = ChoiceSources(cache)
    for _, choice in timed[1:3]:
        assert "moved aside" in tui(cache, "pin", row["id"], choice)
        constants = sources.constants(choice, kind_of(choice))
        for _ in range(2):
            warm = code()
            for name in ("BLOCK_M", "BLOCK_N"):
                assert f"{name} : tl.constexpr = {constants[name]}\n" in warm
            for name in ("num_warps", "num_stages"):
                assert f"{name}={constants[name]}" in warm
        (pin,) = json.loads(tui(cache, "pins", "--json"))["pins"]
        assert pin["state"] == "active"
    tui(cache, "unpin", "--all")
    assert comparable(code()) == comparable(first)


def comparable(code: str) -> str:
    return "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("#"))

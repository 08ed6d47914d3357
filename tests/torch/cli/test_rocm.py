"""Our templates as a person meets them: run, ls, show, pin, verify, a reproducer, unpin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.origin import provider
from rocm_tui.actions.sources import pick_tuning
from rocm_tui.session.find import find_choice
from rocm_tui.session.kernel_source import source_diff
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PROGRAM = """
import torch
import torch._inductor.config as config
from torch._inductor.utils import run_and_get_code
config.max_autotune = True
torch.manual_seed(0)
a, b = torch.randn(2, 20, 32), torch.randn(2, 32, 24)
out, codes = run_and_get_code(torch.compile(lambda a, b: torch.bmm(a, b) + 1), a, b)
print("error", (out - (torch.bmm(a, b) + 1)).abs().max().item() < 1e-4)
print("ours", any("load_kernel" in code for code in codes))
"""


def tui(cache: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache, {"ROCM_TUI_TEMPLATE_BUDGET": "2"}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir in which the program was tuned with templates on."""
    folder = tmp_path_factory.mktemp("ours")
    (folder / "program.py").write_text(PROGRAM)
    run(folder / "cache")
    return folder / "cache"


def run(cache: Path) -> str:
    program = str(cache.parent / "program.py")
    return tui(cache, "run", "--templates", "--", sys.executable, "-W", "ignore", program)


def choice_of_ours(cache: Path) -> tuple[str, dict[str, Any]]:
    (row,) = json.loads(tui(cache, "ls", "--json"))["tunings"]
    found = [choice for choice in row["choices"] if choice["name"].startswith("rocm_gemm")]
    assert found and all(choice["config"]["BLOCK_M"] for choice in found)
    return row["id"], found[0]


def test_pinned_verified_and_taken_back(cache: Path) -> None:
    id_, ours = choice_of_ours(cache)
    tui(cache, "pin", id_, ours["name"])
    assert run(cache) == "error True\nours True\n"
    assert f"({ours['name']})" in tui(cache, "verify")
    tui(cache, "unpin", "--all")
    (row,) = json.loads(tui(cache, "ls", "--json"))["tunings"]
    best = row["choices"][0]["name"]
    assert run(cache) == f"error True\nours {best.startswith('rocm_')}\n"


def test_our_kernel_beside_that_of_inductor(cache: Path) -> None:
    id_, ours = choice_of_ours(cache)
    model, row = pick_tuning(Layout(cache), [], id_)
    first = find_choice(row.tuning, ours["name"])
    (other,) = [choice for choice in row.tuning.choices if provider(choice) == "cpp"]
    session = model.sessions.get(row.tuning.session or "")
    lines = source_diff(row.tuning, first, other, session, Layout(cache))
    assert lines[:2] == [f"--- {first.label}", f"+++ {other.label}"]
    assert any("cpp_prefix.h" in line for line in lines if line.startswith("+"))


def test_the_kernel_and_a_reproducer(cache: Path, tmp_path: Path) -> None:
    id_, ours = choice_of_ours(cache)
    source = tui(cache, "show", id_, ours["name"], "--source")
    assert 'extern "C"' in source or "RT_EXPORT" in source
    assert "__global__" in source
    folder = tmp_path / "repro"
    assert str(folder) in tui(cache, "show", id_, ours["name"], "--reproducer", str(folder))
    tui(cache, "show", id_, ours["name"], "--reproducer", str(folder), code=1)
    tui(cache, "show", id_, "bmm", "--source", code=1)
    tui(cache, "show", id_, "--source", code=2)
    subprocess.run(["make", "-s", "-C", folder, "cpu"], check=True, capture_output=True)

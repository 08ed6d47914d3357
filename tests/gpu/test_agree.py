"""Two ranks on GPUs that chose differently: measured cold, pinned, run again, and they agree.

Skipped where torch sees no GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main
from tests.support.hooked import launch_program

pytestmark = pytest.mark.torch

PROGRAM = """
import os, torch, torch._inductor.config as config
config.max_autotune = True
device = f"cuda:{int(os.environ['RANK']) % torch.cuda.device_count()}"
a, b = (torch.randn(512, 512, device=device, dtype=torch.bfloat16) for _ in "ab")
torch.compile(lambda a, b: a @ b + 1)(a, b)
"""


def rank(cache: Path, number: int) -> None:
    env = {"RANK": str(number), "WORLD_SIZE": "2", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
    launch_program(PROGRAM, cache, "--quiet", env=env)


def let_the_slowest_win(cache: Path) -> None:
    (path,) = (cache / "cache").glob("[!.]*")
    document = json.loads(path.read_text())
    for by_inputs in document["cache"].values():
        for by_precision in by_inputs.values():
            for times in by_precision.values():
                finite = {name: ms for name, ms in times.items() if ms < 1e6}
                best, worst = min(finite, key=finite.get), max(finite, key=finite.get)  # type: ignore[arg-type]
                times[best], times[worst] = times[worst], times[best]
    path.write_text(json.dumps(document))


def test_ranks_on_gpus_are_made_to_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    rank(cache, 0)
    let_the_slowest_win(cache)
    rank(cache, 1)
    assert main(["agree", "--ranks", "2"]) == 1
    capsys.readouterr()
    assert main(["agree", "--ranks", "2", "--measure", "--pin", "--yes", "--json"]) == 0
    printed = capsys.readouterr()
    for problem in json.loads(printed.out)["problems"]:
        assert problem["measured"] is not None, printed.err
        assert problem["measured"]["caches"] == "cold"
        assert problem["proposal"]["by"] == "measured"
    for number in range(2):
        rank(cache, number)
    assert main(["agree", "--ranks", "2"]) == 0

"""`rocm-tui run` in an environment with torch and nothing of ours, and over several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.events import SessionStarted
from rocm_tui import hook_env
from tests.hooked import BMM, by_tuning, launch, sessions
from tests.torch_models import child_env

pytestmark = pytest.mark.torch

OURS = ("rocm_tui", "rocm-tui", "__editable__", "backend", "textual")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a new virtual environment with links to all our packages but ours."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    links = folder / "links"
    links.mkdir()
    import torch

    for entry in Path(torch.__file__).parents[1].iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (links / entry.name).symlink_to(entry)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "links.pth").write_text(str(links))
    return str(folder / "venv" / "bin" / "python")


def test_the_hooks_reach_an_environment_without_us(elsewhere: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "from importlib.util import find_spec\n"
        "before = [find_spec(n) is None for n in ('backend', 'rocm_tui', 'textual', 'watchdog')]\n"
        + BMM
        + "print(json.dumps([before, [p for p in sys.path if 'rocm_tui' in p]]))\n"
    )
    bare = subprocess.run(
        [elsewhere, "-c", "import torch, backend"],
        env=child_env(tmp_path / "cache"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "No module named 'backend'" in bare.stderr
    done = launch(
        [elsewhere, "-W", "ignore", str(program)],
        tmp_path / "cache",
        env={"PYTHONPATH": "/the/users/own"},
    )
    assert done.returncode == 0, done.stderr
    missing, added = json.loads(done.stdout)
    assert missing[:3] == [True, True, True]
    assert added == [str(hook_env.FOLDER)]
    (events,) = sessions(tmp_path / "cache")
    assert [start.op for start, _ in by_tuning(events)] == ["bmm"]


def test_each_rank_of_torchrun_has_its_session(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch; torch.set_num_threads(1)\n" + BMM)
    done = launch(
        [
            *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run"),
            *("--standalone", "--nproc-per-node=2", str(program)),
        ],
        tmp_path / "cache",
        "--quiet",
    )
    assert done.returncode == 0, done.stderr
    found = sessions(tmp_path / "cache")
    headers = [events[0] for events in found]
    assert {h.session.rank for h in headers if isinstance(h, SessionStarted)} == {0, 1}
    assert "2 tunings recorded" in done.stderr and "AUTOTUNE" not in done.stderr

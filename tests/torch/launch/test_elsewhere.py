"""`rocm-tui run` in an environment with torch and nothing of ours, and over several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from backend.inductor.child_python import importing
from backend.model.events import ChoiceFailed, ChoiceTimed, SessionStarted
from rocm_tui import environment as hook_env
from tests.support.hooked import BMM, by_tuning, launch, sessions
from tests.support.places import ROOT
from tests.support.rocm_programs import ON
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

OURS = ("rocm_tui", "rocm-tui", "__editable__", "backend", "textual")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a new virtual environment with links to all our packages but ours."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    links = folder / "links"
    links.mkdir()
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    for entry in Path(torch.origin).parents[1].iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (links / entry.name).symlink_to(entry)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "links.pth").write_text(str(links))
    return str(folder / "venv" / "bin" / "python")


PROGRAM = f"""
import json, os, sys
from importlib.util import find_spec
before = [find_spec(name) is None for name in ("backend", "rocm_tui", "textual")]
import torch
torch.set_num_threads(1)
own = 2 + int(os.environ["RANK"])  # else a rank may take the graph that the other has compiled
{BMM.replace("+ 1)", "+ own)")}
said = json.dumps([before, [path for path in sys.path if "rocm_tui" in path]])
os.write(1, (said + os.linesep).encode())  # in one piece: the other rank writes there too
"""


def test_the_hooks_reach_each_rank_of_an_environment_without_us(
    elsewhere: str, tmp_path: Path
) -> None:
    """`torchrun` starts two processes there; each has its session."""
    bare = subprocess.run(
        [elsewhere, "-c", "import backend"],
        env=child_env(tmp_path / "cache"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "No module named 'backend'" in bare.stderr
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = launch(
        [elsewhere, "-W", "ignore", *torchrun, str(program)],
        tmp_path / "cache",
        "--quiet",
        env={"PYTHONPATH": "/the/users/own"},
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert json.loads(line) == [[True, True, True], [str(hook_env.HOOKS)]]
    found = sessions(tmp_path / "cache")
    tuned = {}
    for events in found:
        header = events[0]
        assert isinstance(header, SessionStarted)
        tuned[header.session.rank] = [start.op for start, _ in by_tuning(events)]
    assert tuned == {None: [], 0: ["bmm"], 1: ["bmm"]}  # torchrun itself imports torch, too
    assert len(found) == 3 and len(done.stdout.splitlines()) == 2
    assert "2 tunings recorded" in done.stderr and "AUTOTUNE" not in done.stderr


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The packages of an environment of ours that has a torch of its own: one that is not meant."""
    site = tmp_path / "tool" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise ImportError('the torch of the tool')\n")
    for package in ("backend", "rocm_tui"):
        (site / package).symlink_to(ROOT / package)
    return site


def test_the_program_s_torch_is_the_one_that_our_choices_run_with(
    elsewhere: str, tool: Path, tmp_path: Path
) -> None:
    """Tool and program in environments of their own, both with a torch."""
    program = tmp_path / "program.py"
    program.write_text(f"{BMM}print(torch.__file__)\n")
    ours = (
        f"import sys; sys.path.insert(0, {str(tool)!r})\n"
        "from rocm_tui.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", ours, "run", "--", elsewhere, "-W", "ignore", str(program)],
        env=child_env(tmp_path / "cache", ON),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert str(tool) not in done.stdout
    (session,) = sessions(tmp_path / "cache")
    assert [event for event in session if isinstance(event, ChoiceFailed)] == []
    timed = {event.hash for event in session if isinstance(event, ChoiceTimed)}
    assert any(hash.startswith("rocm_gemm") for hash in timed), timed


def test_a_graph_with_our_kernels_finds_our_package_and_nothing_beside_it(
    elsewhere: str, tool: Path
) -> None:
    """Whoever loads the graph may have a `backend`; then, and where ours is gone, it says so."""
    text = importing("backend.model.origin", "kernel_hash", "found")
    ours = text.replace(str(ROOT), str(tool))
    check = "import sys; assert found and not [p for p in sys.path if 'tool' in p]"
    for graph, code in ((f"{ours}\n{check}", 0), (ours.replace(str(tool), "/nowhere"), 1)):
        done = subprocess.run(
            [elsewhere, "-c", graph], cwd=tool.parent, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
    assert "`backend` is not found here" in done.stderr

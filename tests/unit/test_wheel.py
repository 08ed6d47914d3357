"""What `python -m build` makes: installed into an empty environment it runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import sysconfig
import termios
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.log_lab import BMM
from tests.support.places import ROOT

LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "tests", "screenshots")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tree, made with the tools that are here: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = shutil.copytree(ROOT, folder / "tree", ignore=LEFT_OUT)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(tree)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_every_file_of_the_packages_is_in_it(wheel: Path) -> None:
    there = {
        str(path.relative_to(ROOT))
        for package in ("rocm_tui", "backend")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert there - names == set()
    assert "rocm_tui_entry.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "tools"))]


def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies lie in a folder of their own, as `pip install` would have put them there."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    tool = tmp_path / "venv" / "bin" / "rocm-tui"
    where = f"import rocm_tui; print(rocm_tui.__file__.startswith({site!r}))"
    environment = {"PATH": "/usr/bin:/bin", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}

    def out(*command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert out(str(python), "-c", where) == "True\n"
    assert out(str(tool), "--version").startswith("rocm-tui ")
    ours = f"import sys, torch; print(sys.modules['backend'].__file__.startswith({site!r}))"
    assert out("env", "ROCM_TUI_TEMPLATES=1", str(python), "-c", ours) == "True\n"
    (tmp_path / "train.log").write_text(BMM)
    (tuning,) = json.loads(out(str(tool), "ls", "--json", "train.log"))["tunings"]
    assert tuning["op"] == "bmm"
    screen = _screen([str(tool), "watch", "train.log"], tmp_path, environment)
    assert "8×128×192×256" in screen and "Traceback" not in screen


def _screen(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Return what the screen has drawn when it shows the tuning, and end it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    env = environment | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True, **ends)
    os.close(theirs)
    shown = b""
    until = time.monotonic() + 60
    while b"8\xc3\x97128" not in shown and time.monotonic() < until:
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 65536)
    process.terminate()
    process.wait(30)
    os.close(ours)
    return shown.decode(errors="replace")

"""What `python -m build` makes: installed into an empty environment it runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
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
    (tmp_path / "train.log").write_text(BMM)
    (tuning,) = json.loads(out(str(tool), "ls", "--json", "train.log"))["tunings"]
    assert tuning["op"] == "bmm"

"""The person's modules never take the place of ours, nor do ours take that of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from rocm_tui.environment import COMMAND
from tests.support.places import ROOT

NAMES = ("rocm_tui.py", "backend/__init__.py", "json.py", "argparse.py", "click.py", "psutil.py")
THEIRS = f"import {', '.join(n.split('.')[0].split('/')[0] for n in NAMES)}"
PROGRAM = f"{THEIRS}\nprint(json.mine, backend.mine, rocm_tui.mine, argparse.mine, click.mine)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a person whose modules have the names of ours and of Python's."""
    (tmp_path / "backend").mkdir()
    for name in NAMES:
        (tmp_path / name).write_text("mine = 1\n")
    return tmp_path


def installed(folder: Path) -> Sequence[str]:
    """The command as an installer writes it."""
    (line,) = (s for s in (ROOT / "pyproject.toml").read_text().splitlines() if "_entry:" in s)
    module, _, function = line.partition(' = "')[2].rstrip('"').partition(":")
    assert callable(getattr(import_module(module), function))
    script = folder / "bin" / "rocm-tui"
    script.parent.mkdir()
    script.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    return sys.executable, str(script)


@pytest.mark.parametrize("how", ["installed", "by its path"])
@pytest.mark.parametrize("path", ["{folder}:{root}", ":{folder}:{root}", "{root}"])
def test_modules_of_the_person(how: str, path: str, folder: Path) -> None:
    command = installed(folder) if how == "installed" else COMMAND
    path = path.format(folder=folder, root=ROOT)
    env = {**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}

    def out(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*command, *words], env=env, cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == code and not done.stderr, done.stderr
        return done.stdout

    assert '"tunings": []' in out("ls", "--json", code=1)
    assert "Usage: rocm-tui watch" in out("watch", "--help")
    assert out("run", "--", sys.executable, "-c", PROGRAM) == "1 1 1 1 1\n"


def test_ctrl_c_while_it_is_loaded_is_no_traceback() -> None:
    program = (
        "import sys\n"
        "class Loader:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'rocm_tui.cli.common': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Loader())\n"
        "from rocm_tui_entry import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

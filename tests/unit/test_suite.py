"""The suite hides no failure: skips have ceilings, missing tools fail CI, mutants are judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips
from tests.matrix import __main__ as matrix
from tests.matrix.environments import NotInstalled, Places, TooSlow
from tests.mutants import __main__ as mutants
from tests.mutants.mutations import mutations_by_line
from tests.mutants.selection import TestFiles
from tests.mutants.trial import Trial, Verdict, unmount
from tests.support.growth import is_linear
from tests.support.places import ROOT
from tests.support.store_disks import mounted

CONFTEST = 'pytest_plugins = ["tests.skips"]\n'


def run_pytest(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a small suite of its own, with the plugin of this one."""
    own = {"PYTHONPATH": str(ROOT), "CI": ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "none.ini", *words],
        cwd=folder,
        env={**os.environ, **own, **env},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "none.ini").write_text("[pytest]\n")
    return tmp_path


SKIPPED = """
import pytest
@pytest.mark.skipif(True, reason="{}")
@pytest.mark.parametrize("n", range({}))
def test_skipped(n): ...
def test_passes(): ...
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("reason", "count", "code"),
    [("no clang++", 2, 0), ("no clang++", 3, 1), ("the moon is full", 1, 1)],
)
def test_a_reason_beyond_its_ceiling_fails_ci(
    suite: Path, reason: str, count: int, code: int, workers: str
) -> None:
    (suite / "test_it.py").write_text(SKIPPED.format(reason, count))
    done = run_pytest(suite, "-n", workers, CI="true")
    assert done.returncode == code, done.stdout
    assert f"skipped {count:4}  {reason}" in done.stdout
    assert ("ERROR: " in done.stdout) == bool(code)
    assert done.stdout.splitlines()[-1].startswith(f"1 passed, {count} skipped in ")


def test_skips_are_only_reported_elsewhere(suite: Path) -> None:
    (suite / "test_it.py").write_text(SKIPPED.format("the moon is full", 1))
    done = run_pytest(suite)
    assert done.returncode == 0 and "skipped    1  the moon is full" in done.stdout
    assert run_pytest(suite, "--skip-limits").returncode == 1


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_file_that_is_skipped_as_a_whole_counts(suite: Path, workers: str) -> None:
    (suite / "test_it.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    (suite / "test_other.py").write_text("def test_passes(): ...\n")
    done = run_pytest(suite, "-n", workers, CI="1")
    assert done.returncode == 1
    assert "1 tests were skipped for 'could not import 'no_such_library'" in done.stdout


def test_an_expected_failure_is_no_skip(suite: Path) -> None:
    text = "import pytest\n@pytest.mark.xfail\ndef test_fails(): assert False\n"
    (suite / "test_it.py").write_text(text)
    assert run_pytest(suite, CI="true").returncode == 0


def test_a_reason_counts_for_the_first_ceiling_that_matches() -> None:
    first, second = skips.Ceiling("no .*", 1, ""), skips.Ceiling("no GPU", 9, "")
    assert skips.excesses(["no GPU", "no fish"], [second, first]) == []
    assert len(skips.excesses(["no GPU", "no fish"], [first, second])) == 1


@pytest.mark.parametrize("how", ["mark", "call"])
def test_a_missing_tool_skips_here_and_fails_ci(suite: Path, how: str) -> None:
    by_mark = "from tests.support.tools import *\n@needs_tool('{}')\ndef test_it(): ...\n"
    by_call = "from tests.support.tools import *\ndef test_it(): require_tool('{}')\n"
    text = by_mark if how == "mark" else by_call
    (suite / "test_it.py").write_text(text.format("no-such-tool"))
    here, in_ci = run_pytest(suite), run_pytest(suite, CI="true")
    assert (here.returncode, in_ci.returncode) == (0, 1)
    assert "the tool no-such-tool is missing: install no-such-tool" in here.stdout
    assert "1 failed" in in_ci.stdout or "1 error" in in_ci.stdout
    (suite / "test_it.py").write_text(text.format("sh"))
    assert run_pytest(suite, CI="true").returncode == 0


def test_make_test_reports_pytest_own_exit_code() -> None:
    """A rerun that passes would hide a race, or a test that depends on others."""
    command = ["make", "-n", "--no-print-directory", "test"]
    env = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert "-m pytest" in done.stdout.splitlines()[-1]
    assert not {"||", ";", "--lf", "--reruns"} & set(done.stdout.splitlines()[-1].split())


def test_make_demo_says_what_it_installs_and_how_long_that_takes(tmp_path: Path) -> None:
    command = ["make", "-n", "--no-print-directory", "demo", f"VENV={tmp_path / 'venv'}"]
    env = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    lines = [line.partition("echo ")[2] for line in done.stdout.splitlines() if "echo " in line]
    steps = [line for line in lines if " of 3: " in line]
    assert ["seconds" in steps[0], "minutes" in steps[-2], "minute" in steps[-1]] == [True] * 3
    before, _, after = done.stdout.partition("pip install torch")
    assert "installing torch==" in before and "-m pip install -q -e ." in after


@pytest.mark.parametrize(("user", "error"), [("1000", "missing packages"), ("0", "cannot install")])
def test_ci_names_the_tools_that_it_cannot_install(tmp_path: Path, user: str, error: str) -> None:
    programs = {"id": f"echo {user}", "apt-get": "echo 'E: no network' >&2; exit 100"}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("sort", "tr", "grep", "tail", "mktemp", "rm", "python3", "make", "g++", "tmux"):
        real = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
        (tmp_path / name).symlink_to(real)
    script = (ROOT / ".ci" / "tools").read_text().replace("PATH=$PATH:", "PATH=$PATH #", 1)
    done = subprocess.run(
        ["/bin/bash", "-c", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"ci: {error}") and " zsh" in done.stderr
    assert "tmux" not in done.stderr


@pytest.mark.parametrize(("error", "code"), [(TooSlow("slow"), 0), (NotInstalled("broken"), 1)])
def test_a_newest_torch_that_cannot_be_installed_fails(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def python(places: Places, version: str) -> str:
        raise error

    monkeypatch.setattr(Places, "python", python)
    assert matrix.main(["--newest"]) == code


MODULE = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import os
def limit(value: int) -> int:
    '''Has 1 docstring.'''
    if value > 10:
        raise ValueError(value)
    return value
def unchecked(value: int) -> bool:
    return value > 10 and value < 20
"""
TEST = """\
import pytest
from package.room.limits import limit, unchecked
def test_limit():
    assert limit(10) == 10
    with pytest.raises(ValueError):
        limit(11)
    unchecked(3)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of a module and its test, which checks one function of two."""
    files = {
        "package/room/limits.py": MODULE,
        "tests/unit/room/test_limits.py": TEST,
        "tests/unit/test_other.py": "def test_passes(): ...\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_killed_mutants_and_survivors_are_told_apart(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    words = ["--tree", str(tree), "--rooms", "package/room", "--number", "9", "--seed", "5"]
    assert mutants.main([*words, "--jobs", "1", "--at-least", "75"]) == 0
    trials = capsys.readouterr().out.partition("not noticed")[0].splitlines()[1:]
    noticed = {line.split()[1].partition(":")[2]: line.split()[0] for line in trials if line}
    assert noticed == {"6": "killed", "7": "killed", "8": "killed", "10": "survived"}
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before


def test_what_a_killed_test_had_mounted_is_unmounted(tmp_path: Path) -> None:
    with mounted(tmp_path / "outside") as outside:
        place = tmp_path / "below" / "mount"
        place.mkdir(parents=True)
        subprocess.run(["mount", "--bind", str(outside), str(place)], check=True)
        assert place.is_mount()
        unmount(place.parent)
        assert not place.is_mount() and outside.is_mount()


def test_too_few_killed_mutants_fail() -> None:
    (mutation,) = mutations_by_line(b"x = 1")[1]
    killed, survived = (
        Trial("m.py", mutation, verdict, 0.0, ()) for verdict in (Verdict.KILLED, Verdict.SURVIVED)
    )
    assert mutants.report([killed] * 84 + [survived] * 16, [], 85.0) == 1
    assert mutants.report([killed] * 85 + [survived] * 15, [], 85.0) == 0
    assert mutants.report([], [], 85.0) == 1


def test_only_executable_lines_are_mutated() -> None:
    assert sorted(mutations_by_line(MODULE.encode())) == [6, 7, 8, 10]


def test_each_kind_of_fault_is_made() -> None:
    source = (
        b"with lock:\n call(a, b)\nx = [i for i in y if i and z]\nn = 1 + x\ndef f() -> str:\n"
        b" return s if True else t\nraise E\nwhile c: pass\nm = min(a, b)\n"
    )
    found = [mutation for line in mutations_by_line(source).values() for mutation in line]
    assert {mutation.kind for mutation in found} == {
        "no-lock", "swap", "drop-call", "comp-if", "drop-operand", "arithmetic", "int+1", "return",
        "cond-true", "cond-false", "bool", "drop-raise",
    }  # fmt: skip
    texts = {mutation.apply(source).decode() for mutation in found}
    assert any("call(b, a)" in text for text in texts)
    assert not any("min(b, a)" in text for text in texts), "the same program"
    assert any("if ((i))]" in text for text in texts) and any('return ""' in text for text in texts)


def test_tests_that_mirror_a_module_come_first(tree: Path) -> None:
    ranked = TestFiles(tree, ("package",)).ranked("package/room/limits.py")
    assert ranked == ["tests/unit/room/test_limits.py"]


def test_work_by_the_square_is_not_linear() -> None:
    assert is_linear(lambda size: sum(range(size * 100)), 100)
    assert not is_linear(lambda size: [sum(range(size)) for _ in range(size)], 100)

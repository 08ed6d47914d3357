"""The last three lines of `rocm-tui run -- CMD`, for each way in which a real program can end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hooked import BMM, LAUNCHER
from tests.support.torch_models import child_env

UNTUNED = BMM.replace("config.max_autotune = True", "")
ONE_CHOICE = BMM.replace("True", "True; config.max_autotune_gemm_backends = 'ATEN'")
NO_TORCH = "no process was seen to import torch with our hooks"
PYTHON = "whether the program imports torch, in a Python that has our hooks"


def said(
    tmp_path: Path, *command: str, env: dict[str, str] | None = None, code: int = 0
) -> list[str]:
    """Return the last lines of stderr, without the name of the program."""
    done = subprocess.run(
        [*LAUNCHER, "--quiet", "--", *command],
        env=child_env(tmp_path / "cache", env),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr[-3000:]
    lines = done.stderr.splitlines()[-3:]
    assert all(line.startswith("rocm-tui: ") for line in lines), done.stderr[-3000:]
    assert lines[2].startswith("rocm-tui: next: rocm-tui ")
    return [line.removeprefix("rocm-tui: ") for line in lines]


def python(tmp_path: Path, source: str, *flags: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(source)
    return [sys.executable, "-W", "ignore", *flags, str(program)]


@pytest.mark.parametrize(
    ("script", "code", "look"),
    [
        ("true", 0, PYTHON),
        ("exit 3", 3, "the program ended with exit code 3"),
        ("kill -TERM $$", -15, "the program was ended by SIGTERM"),
    ],
)
def test_a_program_without_torch(tmp_path: Path, script: str, code: int, look: str) -> None:
    first, second, _ = said(tmp_path, "sh", "-c", script, code=code)
    assert (first, second) == (f"nothing was recorded: {NO_TORCH}", f"worth a look: {look}")


@pytest.mark.torch
def test_torch_without_compile(tmp_path: Path) -> None:
    first, second, third = said(tmp_path, *python(tmp_path, "import torch"))
    assert first == (
        "nothing was recorded: torch was imported, and no torch.compile tuned or compiled a graph"
    )
    assert second == "worth a look: whether the program reaches torch.compile"
    assert third.startswith("next: rocm-tui sessions ")


@pytest.mark.torch
def test_hooks_that_are_forbidden(tmp_path: Path) -> None:
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    first, _, third = said(tmp_path, *python(tmp_path, "import torch"), env=env)
    assert first.startswith("nothing was recorded: TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch")
    assert third.startswith(f"next: rocm-tui doctor --python {sys.executable} ")


@pytest.mark.torch
def test_tuning_that_is_off(tmp_path: Path) -> None:
    first, second, third = said(tmp_path, *python(tmp_path, UNTUNED))
    assert first.startswith("0 tunings recorded in ") and first.endswith(", with 1 compiled graph")
    assert second == "worth a look: max_autotune was off for it"
    assert third.startswith("next: rocm-tui run --max-autotune -- ")


@pytest.mark.torch
def test_one_choice_each(tmp_path: Path) -> None:
    first, second, third = said(tmp_path, *python(tmp_path, ONE_CHOICE))
    assert first.startswith("1 tuning recorded in ")
    assert second == "one choice each: nothing to tune"
    assert third.startswith("next: rocm-tui graphs ")


@pytest.mark.torch
def test_a_tuning_and_the_same_with_a_pin(tmp_path: Path) -> None:
    """The next command runs as it is written, and so does the one after a pin."""
    program = python(tmp_path, BMM)
    first, second, third = said(tmp_path, *program)
    assert first.startswith("1 tuning recorded in ") and first.endswith(", with 1 compiled graph")
    assert second.startswith("worth a look: ")
    assert "one timing each" in second or "cannot be right" in second
    assert third.startswith("next: rocm-tui measure ")
    listed = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "ls"],
        env=child_env(tmp_path / "cache"),
        capture_output=True,
        text=True,
    ).stdout
    id = listed.splitlines()[1].split()[0]
    pin = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "pin", id, "#2"],
        env=child_env(tmp_path / "cache"),
        capture_output=True,
        text=True,
    )
    assert pin.returncode == 0, pin.stderr
    _, second, third = said(tmp_path, *program)
    assert second == "worth a look: whether the pins are used"
    assert third.startswith("next: rocm-tui verify ")


@pytest.mark.torch
def test_a_pipe_gets_the_lines_of_a_program_that_tunes(tmp_path: Path) -> None:
    done = subprocess.run(
        [*LAUNCHER, "--", *python(tmp_path, "import torch")],
        env={**os.environ, **child_env(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert len(done.stderr.splitlines()) == 3

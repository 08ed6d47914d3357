"""What `import torch` turns on in a process, by what its environment asks for."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from backend.inductor.hooks import activation, environment
from backend.inductor.torch import versions
from rocm_tui import environment as hook_env


@pytest.mark.parametrize(("run", "recorded"), [("", False), ("a-run", True)])
def test_a_program_whose_launches_are_looked_at_is_recorded_in_a_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, recorded: bool
) -> None:
    """As of `rocm-tui verify -- CMD`, and where CMD is `rocm-tui run` itself."""
    for name, value in {**hook_env.hooked({}, run), environment.LAUNCH_LOG: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    watched: list[str] = []
    activated: list[bool] = []
    monkeypatch.setattr(activation, "when_imported", lambda name, action: watched.append(name))
    monkeypatch.setattr(activation, "activate", lambda templates: activated.append(templates))
    activation.autoload()
    assert watched == [versions.TRITON_AUTOTUNER, versions.AUTOTUNER]
    assert bool(activated) == recorded


def test_a_watched_module_is_the_one_that_its_loader_creates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one in C: an empty module in its place would lack all that it holds."""
    monkeypatch.delitem(sys.modules, "_opcode", raising=False)
    done: list[bool] = []
    activation.when_imported("_opcode", lambda: done.append("_opcode" in sys.modules))
    assert not done
    assert importlib.import_module("_opcode").stack_effect and done == [True]

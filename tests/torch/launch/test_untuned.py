"""`rocm-tui run` of a program that asks for no tuning says so, and what to add; warm graphs too."""

from __future__ import annotations

from pathlib import Path

from tests.support.hooked import BMM, launch_program

UNTUNED = BMM.replace("config.max_autotune = True", "")


def test_a_run_without_max_autotune_says_what_to_add(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in ("cold", "warm"):
        first, look, command = launch_program(UNTUNED, cache).stderr.splitlines()[-3:]
        assert first.startswith("rocm-tui: 0 tunings recorded in ")
        assert first.endswith(", with 1 compiled graph")
        assert look == "rocm-tui: worth a look: max_autotune was off for it"
        assert command.startswith("rocm-tui: next: rocm-tui run --max-autotune -- ")

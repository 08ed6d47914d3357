"""Planted options of Inductor that help, or change the outputs, by `rocm-tui trial --option` on
graphs of a real program. `benchmarks/bench_planted.py` tries all plants.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.option_plants import PLANTS, captured, rocm_tui, trial

pytestmark = pytest.mark.torch

INEXACT = "cpp.use_decompose_tanh=True"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plants") / "cache"


@pytest.fixture(scope="module")
def graphs(cache: Path) -> dict[str, str]:
    return captured(cache, ["scalar_chain", "mixed"])


def test_an_option_that_helps_is_faster_and_one_without_effect_is_not(
    cache: Path, graphs: dict[str, str]
) -> None:
    plants = PLANTS["scalar_chain"]
    tried = trial(cache, graphs["scalar_chain"], *plants, budget=6)
    assert {arm.option: arm.said for arm in tried} == plants


def test_options_that_change_the_outputs_are_refused(cache: Path, graphs: dict[str, str]) -> None:
    plants = PLANTS["mixed"]
    tried = {arm.option: arm for arm in trial(cache, graphs["mixed"], *plants, budget=1)}
    assert {option: arm.said for option, arm in tried.items()} == plants
    assert tried[INEXACT].differs
    overflow = tried["emulate_precision_casts=True"].arm["failed"]
    assert overflow == "wrong result: output 1 is not finite at other places"
    bug = tried["cpp.inject_relu_bug_TESTING_ONLY=accuracy"].arm["failed"]
    assert "cannot be tried: it does not decide what is compiled" in bug


def test_an_option_that_is_faster_but_wrong_is_not_proposed(
    cache: Path, graphs: dict[str, str]
) -> None:
    done = rocm_tui(cache, "trial", "--graph", graphs["mixed"], "--option", INEXACT, "--yes")
    assert "more than rounding explains" in done.stdout, done.stderr
    assert f"{INEXACT} computes something else" in done.stdout
    assert "To compile with" not in done.stdout

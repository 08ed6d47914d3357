"""`compare` on real sessions: a planted slower choice is found, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations

import pytest

from rocm_tui.cli.entry import main
from tests.support.compare_sessions import ATTEMPTS, PLANTED, Sessions
from tests.support.places import EVERYTHING

SAME = ("a", "b", "c", "d", "e") if EVERYTHING else ("a", "b", "c")
MORE = f"f{PLANTED}"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    found = Sessions(tmp_path_factory.mktemp("sessions"))
    for name in (*SAME, MORE):
        found.tune(name)
        found.measure(name)
    yield found
    found.close()


def compare(sessions: Sessions, a: str, b: str) -> int:
    return main(["compare", str(sessions.root / a), str(sessions.root / b), *FAIL])


FAIL = ["--fail-on-regression", "10"]


def test_a_choice_that_really_became_slower_fails_and_is_named(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured again while the verdict is unclear, as the sentence beside it says."""
    for _ in range(ATTEMPTS):
        if compare(sessions, "a", MORE) == 1:
            break
        sessions.measure("a")
        sessions.measure(MORE)
    else:
        pytest.fail(f"not found in {ATTEMPTS} attempts:\n{capsys.readouterr().out}")
    told = capsys.readouterr()
    assert "slower by more than 10 %" in told.err and " mm 1920×17×256: mm: " in told.err
    assert "measured" in told.err
    assert main(["compare", *(str(sessions.root / name) for name in ("a", MORE)), "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["common"]
    assert pair["verdict"] == "slower" and pair["same_choice"]
    assert pair["a"]["from"] == pair["b"]["from"] == "measured"
    assert 1.1 < pair["ratio"] < 1.8  # a fifth longer; the processes ran at different times


@pytest.mark.parametrize(("a", "b"), list(permutations(SAME, 2)))
def test_two_runs_of_the_same_thing_pass(
    sessions: Sessions, a: str, b: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(sessions, a, b) == 0, capsys.readouterr().out


def test_a_real_session_says_what_it_asked_for_and_what_cannot_appear(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(sessions.root / "a"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (absent,) = told["missing"]
    assert (absent["backend"], absent["ops"], absent["everywhere"]) == ("CK", ["mm"], True)
    assert absent["reasons"] == [{"text": "this torch is not a ROCm build", "count": 0}]
    (gain,) = told["saved"]["tunings"]
    assert gain["saved_ms"] == 0 and gain["calls"] == 1 and told["saved"]["seconds"] > 0
    assert told["repeated"] == [] and told["disagreements"] == []

"""`compare` on real sessions: a planted slower choice is found, and nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from backend.store.paths import Layout
from rocm_tui.cli import main
from rocm_tui.commands.common import load
from rocm_tui.session.stats import winner
from tests.hooked import LAUNCHER
from tests.torch_models import child_env

PROGRAM = Path(__file__).parent / "compare_program.py"
SAME = ("a", "b", "c", "d", "e")
PLANTED = "f-planted"
ATTEMPTS = 8
"""Where a neighbour process makes the verdict unclear, it is measured again, as a person would."""


class Sessions:
    """Real processes under `rocm-tui run` that tune and measure, each on a cache dir of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process = subprocess.Popen(
            [*LAUNCHER, "--quiet", "--", sys.executable, "-W", "ignore", str(PROGRAM)],
            env=child_env(root / "none"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, command: str, name: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(command, self.root / name, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n"

    def tune(self, name: str) -> None:
        """A session in which ATen wins; beside a busy neighbour one number may say otherwise."""
        for _ in range(ATTEMPTS):
            self.tell("tune", name)
            (row,) = load(Layout(self.root / name), []).rows()
            best = winner(row.tuning)
            if best is not None and best.name == "bmm":
                return
            shutil.rmtree(self.root / name)
        pytest.fail(f"ATen never won in {ATTEMPTS} tunings")

    def close(self) -> None:
        _, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    found = Sessions(tmp_path_factory.mktemp("sessions"))
    for name in (*SAME, PLANTED):
        found.tune(name)
        found.tell("measure", name)
    yield found
    found.close()


def compare(sessions: Sessions, a: str, b: str) -> int:
    return main(["compare", str(sessions.root / a), str(sessions.root / b), *FAIL])


FAIL = ["--fail-on-regression", "10"]


def test_a_choice_that_really_became_slower_fails_and_is_named(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(ATTEMPTS):
        if compare(sessions, "a", PLANTED) == 1:
            break
        sessions.tell("measure", "a")
        sessions.tell("measure", PLANTED)
    else:
        pytest.fail(f"not found in {ATTEMPTS} attempts:\n{capsys.readouterr().out}")
    told = capsys.readouterr()
    assert "slower by more than 10 %" in told.err and " bmm 10×192×17×256: bmm: " in told.err
    assert "measured" in told.err
    assert main(["compare", *(str(sessions.root / name) for name in ("a", PLANTED)), "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["common"]
    assert pair["verdict"] == "slower" and pair["same_choice"]
    assert pair["a"]["from"] == pair["b"]["from"] == "measured"
    assert 1.1 < pair["ratio"] < 1.4


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
    (absent,) = told["absent"]
    assert (absent["backend"], absent["ops"], absent["everywhere"]) == ("CK", ["bmm"], True)
    assert absent["reasons"] == [{"text": "this torch is not a ROCm build", "count": 0}]
    (gain,) = told["bought"]["tunings"]
    assert gain["saved_ms"] == 0 and gain["calls"] == 1 and told["bought"]["seconds"] > 0
    assert told["repeated"] == [] and told["disagreements"] == []

"""Which of torch's modes are tried, and what is left of a budget when a choice ends its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.wire.jobs import Progress
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import KEPT, LEAST_BUDGET, keep_log, try_modes, without_broken


@dataclass(frozen=True)
class Answer:
    good: bool
    modes: int = 3


class Asked:
    """A worker that has an answer for each question and mode; `calls` are in their order."""

    def __init__(self, good: Callable[[str, int], bool], modes: int = 3) -> None:
        self.calls: list[tuple[str, int]] = []
        self._good, self._modes = good, modes

    def __call__(self, question: str, mode: int) -> Answer:
        self.calls.append((question, mode))
        return Answer(self._good(question, mode), self._modes)


def tried(questions: str, asked: Asked) -> list[tuple[str, list[int]]]:
    answers = try_modes(questions, asked, lambda answer: answer.good)
    return [(question, list(by_mode)) for question, by_mode in answers]


def test_a_question_is_asked_in_each_mode_until_one_settles_it() -> None:
    asked = Asked(lambda question, mode: mode == 2)
    assert tried("a", asked) == [("a", [0, 1, 2])]
    assert tried("a", Asked(lambda question, mode: False)) == [("a", [0, 1, 2])]
    assert tried("a", Asked(lambda question, mode: False, modes=1)) == [("a", [0])]
    assert tried("a", Asked(lambda question, mode: True)) == [("a", [0])]
    assert tried("", Asked(lambda question, mode: True)) == []


def test_the_mode_that_settled_one_question_is_the_first_for_the_next() -> None:
    asked = Asked(lambda question, mode: mode == 1)
    assert tried("abc", asked) == [("a", [0, 1]), ("b", [1]), ("c", [1])]
    assert len(asked.calls) == 4


def test_a_mode_that_fits_is_kept_for_all_before_another_is_tried() -> None:
    """`b` alone needs another mode: then `c` is asked first in the mode that fitted `a`."""
    asked = Asked(lambda question, mode: mode == (1 if question == "b" else 0))
    assert tried("abc", asked) == [("a", [0]), ("c", [0]), ("b", [0, 1])]
    assert asked.calls == [("a", 0), ("b", 0), ("c", 0), ("b", 1)]


def test_an_answer_of_no_mode_says_nothing_about_modes() -> None:
    """As where a worker died: the next question is asked in the same mode, which may not fit."""
    asked = Asked(lambda question, mode: question == "a" or mode == 1, modes=0)
    assert tried("ab", asked) == [("a", [0]), ("b", [0])]


@pytest.mark.parametrize(
    ("left", "budgets"),
    [(None, [9.0, 9.0]), (4.0, [9.0, 4.0]), (20.0, [9.0, 9.0]), (0.0, [9.0, LEAST_BUDGET])],
)
def test_the_others_have_what_is_left_of_the_budget(
    left: float | None, budgets: list[float]
) -> None:
    seen: list[float] = []
    blamed: list[JobError] = []

    def ask(budget: float) -> str:
        seen.append(budget)
        if len(seen) == 1:
            error = JobError("it died")
            error.last = None if left is None else Progress(seconds_left=left)
            raise error
        return "done"

    assert without_broken(ask, blamed.append, 9.0) == "done"
    assert seen == budgets and len(blamed) == 1


def test_who_is_not_to_blame_ends_it() -> None:
    def ask(budget: float) -> str:
        raise JobError("it died")

    def blame(error: JobError) -> None:
        raise error

    with pytest.raises(JobError, match="it died"):
        without_broken(ask, blame, 9.0)


def test_the_newest_logs_of_failed_workers_are_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    paths = [keep_log(layout, "tune", [f"line {number}", "end"]) for number in range(KEPT + 2)]
    left = sorted((layout.home / "failed").iterdir())
    assert left == paths[2:] and all(path.name.endswith("-tune.log") for path in left)
    assert left[-1].read_text() == f"line {KEPT + 1}\nend\n"
    later = [path.with_name(path.name.replace("20", "30", 1)) for path in left]
    for path, name in zip(left, later, strict=True):
        path.rename(name)
    now = keep_log(layout, "tune", ["the clock was set back"])
    assert now is not None and sorted((now, *later[1:])) == sorted(now.parent.iterdir())
    assert keep_log(layout, "tune", ["", "  "]) is None
    assert keep_log(layout, "tune", []) is None

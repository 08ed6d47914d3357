"""Cold tunings of a program, and how far they differ: as text, and as JSON."""

from __future__ import annotations

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.jobs import problem_title
from rocm_tui.session import numbers as fmt
from rocm_tui.session.spread import ColdTuning, DifferingWinner, Spread, ratio_of

_SHOWN = 5


def tuning_line(number: int, tuning: ColdTuning) -> str:
    """One run, as it ends: `cold tuning 2: 12.34 ms a step, 40 steps in 3.1 s`."""
    count = f"{counted(tuning.steps, 'step')} in {fmt.seconds(tuning.seconds)}"
    return f"cold tuning {number}: {fmt.duration(tuning.ms)} a step, {count}"


def spread_sentences(spread: Spread) -> list[str]:
    """What was seen, what it means, and which winners differ."""
    low, high = min(spread.times), max(spread.times)
    percent = fmt.percent(spread.ratio - 1)
    said = [
        f"{counted(len(spread.tunings), 'cold tuning')}: a step took {fmt.duration(spread.ms)} in "
        f"the median, {fmt.duration(low)} to {fmt.duration(high)}, a spread of {percent}.",
        f"A difference below {percent} between two tunings of this program says nothing: equal "
        "programs, tuned anew, differ by as much, and more tunings may differ by more.",
    ]
    differing = spread.differing
    if differing:
        said.append(f"{counted(len(differing), 'problem')} had different winners:")
        said += [f"{problem_title(each.problem)}: {_winners(each)}" for each in differing[:_SHOWN]]
        if more := differing[_SHOWN:]:
            said.append(f"{len(more):,} more are in --json.")
    elif any(tuning.rows for tuning in spread.tunings):
        said.append("All had the same winners: the processes differ, or what ran beside them.")
    else:
        said.append("Nothing was tuned: the processes differ, or what ran beside them.")
    return [plain(text) for text in (*said, *spread.trouble)]


def _winners(differing: DifferingWinner) -> str:
    return ", ".join(f"{label} ({count})" for label, count in differing.winners)


def known_spread_text(times: tuple[float, ...]) -> str:
    """What `improve` says of the cold tunings of its graph."""
    return (
        f"{counted(len(times), 'cold tuning')} of this graph in stock PyTorch differed by up to "
        f"{fmt.percent(ratio_of(times) - 1)}: two programs that are tuned anew may differ by as "
        "much"
    )


class ColdTuningJson(JsonObject):
    ms: float
    steps: int
    seconds: float


class SeenWinnerJson(JsonObject):
    """A winner, and how many cold tunings had it."""

    choice: str
    tunings: int


class DifferingWinnerJson(JsonObject):
    op: str
    inputs: str | None
    winners: list[SeenWinnerJson]


class SpreadJson(Document, tag="rocm-tui/trial-spread/1"):
    """Cold tunings of a program; times of a step in milliseconds, `ratio` is `high` over `low`."""

    command: tuple[str, ...]
    ms: float
    low: float
    high: float
    ratio: float
    tunings: list[ColdTuningJson]
    differing: list[DifferingWinnerJson]
    trouble: tuple[str, ...]

    @classmethod
    def of(cls, spread: Spread) -> SpreadJson:
        return fill(
            cls,
            spread,
            low=min(spread.times),
            high=max(spread.times),
            tunings=[fill(ColdTuningJson, tuning) for tuning in spread.tunings],
            differing=[
                DifferingWinnerJson(
                    op=each.problem.op,
                    inputs=each.problem.inputs_key,
                    winners=[SeenWinnerJson(choice=name, tunings=n) for name, n in each.winners],
                )
                for each in spread.differing
            ],
        )

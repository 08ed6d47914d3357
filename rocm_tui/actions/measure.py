"""Choose which choices to measure again, and run the worker's job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from backend.counted import counted
from backend.model.choice import Caches, Choice, Measurement
from backend.model.ops import OPS
from backend.model.tuning import Tuning
from backend.wire.jobs import MeasureJob, MeasureResult
from rocm_tui.config.settings import config
from rocm_tui.errors import NoSuchChoice, RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import RunJob, try_modes, without_broken
from rocm_tui.jobs.tune import problem_of
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import why_not_measured


class NotMeasurable(RocmTuiError):
    """Too little is known of a tuning or of a choice to run it again."""


class NotMeasured(RocmTuiError):
    """Nothing was measured; one line says why."""


def worth_measuring(
    tuning: Tuning, pinned: str | None = None, within: float = stats.NEAR
) -> tuple[Choice, ...]:
    """The timed choices at most `within` slower than the best; in any case the second, ATen's best
    (Inductor times its calls with the cost of a call from the middle of a compile) and the one
    whose hash is `pinned`."""
    timed = stats.ranked(tuning)
    if not timed:
        return ()
    most = (timed[0].ms or 0.0) * (1 + within)
    always = (*timed[:2], stats.aten(tuning))
    return tuple(
        choice
        for choice in timed
        if choice in always or (choice.ms or 0.0) <= most or (pinned and choice.hash == pinned)
    )


def choices_to_measure(
    row: Row, wanted: Sequence[Choice] = (), within: float = stats.NEAR
) -> Sequence[Choice]:
    """The choices that a person named or marked, else those worth it, the pinned one too."""
    pinned = row.pin.pin.hash if row.pin else None
    return wanted or worth_measuring(row.tuning, pinned, within)


def measure_job(
    tuning: Tuning,
    choices: Sequence[Choice],
    *,
    budget: float | None = None,
    caches: Caches | None = None,
    rounds: int = 0,
) -> MeasureJob:
    """The job of a worker, which decides on `caches` where they are None.

    Raises NotMeasurable and NoSuchChoice.
    """
    key = tuning.key
    if key is None:
        raise NotMeasurable(why_not_measured(tuning, choices) or "")
    hashes = [choice.hash for choice in choices if choice.hash is not None]
    why = why_not_measured(tuning, choices)
    if why is not None:
        raise NoSuchChoice(why) if choices else NotMeasurable(why)
    return MeasureJob(
        op=key.op,
        inputs=key.inputs,
        precision=key.precision,
        hashes=tuple(hashes),
        budget=config().budgets.measure if budget is None else budget,
        caches=caches,
        rounds=rounds,
        threads=tuning.threads,
        options=tuning.options_text,
    )


class Measuring:
    """Measures choices of a tuning, each time in a worker of its own.

    What the first time has shown stays: in which mode torch offers all the choices, else the most
    of them; and which of them end their worker. Those have failed, and the others are measured.
    """

    def __init__(
        self,
        run: RunJob,
        tuning: Tuning,
        choices: Sequence[Choice],
        *,
        budget: float | None = None,
        caches: Caches | None = None,
        rounds: int = 0,
    ) -> None:
        """Raises what `measure_job` raises."""
        self._run = run
        self._job = measure_job(tuning, choices, budget=budget, caches=caches, rounds=rounds)
        self.budget = self._job.budget
        self._names = {choice.hash or "": choice.label for choice in choices}
        self._broken: dict[str, str] = {}
        self._settled = False

    def once(self) -> Measurement:
        """Raises JobError and NotMeasured."""
        return measurement_of(self._do(self._job) if self._settled else self._first())

    def _first(self) -> MeasureResult:
        """Find the mode that offers all choices, else the one that offers most of them."""
        [(_, answers)] = try_modes(
            [self._job],
            lambda job, mode: self._do(replace(job, mode=mode)),
            lambda result: not result.missing,
        )
        mode, result = list(answers.items())[-1]
        self._job = replace(self._job, mode=mode)
        missing = {mode: len(answer.missing) for mode, answer in answers.items()}
        fullest = min(missing, key=missing.__getitem__)
        if 0 < missing[fullest] < len(self._names):
            self._job = replace(self._job, mode=fullest, partly=True)
            result = self._do(self._job)
        self._settled = True
        return result

    def _do(self, job: MeasureJob) -> MeasureResult:
        """A choice that ends its worker is left out from then on, within what is left of the
        budget."""

        def ask(budget: float) -> MeasureResult:
            return self._run(replace(job, budget=budget, broken=dict(self._broken)))

        return without_broken(ask, self._blame, job.budget)

    def _blame(self, error: JobError) -> None:
        """Raises `error` if no choice is to blame for it, NotMeasured if every one is broken."""
        hash = error.blamed
        if hash is None or hash not in self._names or hash in self._broken:
            raise error
        self._broken[hash] = str(error)
        if len(self._broken) == len(self._names):
            reason = f"{plain(self._names[hash])}: {error}"
            raise NotMeasured(f"none of the choices can be run; {reason}") from error


def measurement_of(result: MeasureResult) -> Measurement:
    """Return the worker's measurement. Raises NotMeasured."""
    if result.measurement is None or not result.ok:
        raise NotMeasured(plain(result.reason or "the worker gave no measurement"))
    return result.measurement


def check_percent(value: float) -> float:
    """Return the percentage of `--within` as a share. Raises UsageError."""
    if not 0 <= value < 1e9:
        raise UsageError("--within is a percentage, 0 or more")
    return value / 100


SECONDS_EACH = 15.0
"""Seconds that the measurement of one tuning takes, the start of a worker with it, seen on CPUs and
GPUs: 10 to 20. Its budget may be longer."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tuning and its choices that are to be measured."""

    row: Row
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Suspects:
    """The tunings to measure, the most important first.

    Of tunings with one key one is measured, for all of them. `others` cannot be measured here.
    """

    suspects: tuple[Suspect, ...]
    others: int = 0

    @property
    def seconds(self) -> float:
        """The approximate duration."""
        return SECONDS_EACH * len(self.suspects)

    @property
    def missing(self) -> str:
        """A sentence about suspects that cannot be measured; empty if there are none."""
        if not self.others:
            return ""
        suspects = counted(self.others, "suspect is", "suspects are")
        return f"{suspects} known from logs alone, or of an op that cannot be made again."


def time_of(row: Row) -> float:
    """Return the time of the winner, as an estimate of its share of a program."""
    return stats.time_ms(row.tuning, stats.winner(row.tuning)) or 0.0


def find_suspects(rows: Iterable[Row]) -> Suspects:
    """The suspects among `rows`, those whose winners take longest first."""
    suspects: dict[object, Suspect] = {}
    others = 0
    for row in sorted((row for row in rows if row.suspect), key=time_of, reverse=True):
        try:
            choices = _suspect_choices(row)
        except RocmTuiError:
            others += 1
        else:
            suspects.setdefault((row.tuning.key, row.tuning.device), Suspect(row, choices))
    return Suspects(tuple(suspects.values()), others)


def _suspect_choices(row: Row) -> tuple[Choice, ...]:
    """Raises RocmTuiError for what cannot be measured."""
    row_of_op = OPS.get(row.tuning.op)
    extra = problem_of(row.tuning).options_text
    if not extra and (row_of_op is None or not row_of_op.buildable):
        raise RocmTuiError(f"{row.tuning.op} cannot be made again")
    tuning, near = row.tuning, choices_to_measure(row)
    timed = [choice for choice in stats.ranked(tuning) if choice.hash is not None]
    blurred = [choice for choice in timed[:MOST_BLURRED] if stats.near(tuning, timed[0], choice)]
    choices = (*near, *(choice for choice in blurred if choice not in near))
    measure_job(tuning, choices)
    return choices


MOST_BLURRED = 8
"""The most choices to measure whose times are too coarse to compare with the best."""

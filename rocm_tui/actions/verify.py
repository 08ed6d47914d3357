"""All pins proved in one worker, one after another.

Another worker is started only where the process cannot be a fresh program's any more: it died or
hung, a compile failed in it, or the next pin has other needs (`jobs.warm.Needs`): another autotune
mode, another precision, or our templates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from backend.counted import device_ranges
from backend.disk.layout import Layout
from backend.errors import StoreError, brief
from backend.model.inductor_kernel import is_kernel
from backend.model.origin import is_own
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from backend.tables.model import is_table_op
from backend.wire.jobs import Progress, VerifyJob, VerifyResult
from rocm_tui.config.settings import config
from rocm_tui.environment import CPU, device_env
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, Limits, WorkerDied
from rocm_tui.jobs.run import RunJob, try_modes
from rocm_tui.jobs.warm import Workers

Tell = Callable[[int, Pin, str], None]
"""Gets the number of the pin that is verified, from 1, the pin, and what the worker does."""


@dataclass(frozen=True, slots=True)
class PinToVerify:
    """A pin, with the threads of the process that tuned it and the op's extra arguments
    (`Problem.options_text`).

    It is verified on each of `gpus`; if there are none, on the device that the worker uses.
    """

    pin: Pin
    threads: int | None = None
    options: str = ""
    gpus: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int | None, ...]:
        """The devices on which it is proved, one after another."""
        return self.gpus or (None,)

    def on(self, device: str | None) -> PinToVerify:
        """Return it for that GPU alone, if one is named. A pin of the CPU stays there.

        Raises UsageError.
        """
        device_env(os.environ, device)
        if device in (None, CPU) or "'cuda'" not in self.pin.inputs:
            return self
        return replace(self, gpus=(int(device),))

    def job(self, mode: int = 0, gpu: int | None = None) -> VerifyJob:
        pin = self.pin
        return VerifyJob(
            pin.op,
            pin.inputs,
            pin.precision,
            pin.hash,
            mode,
            self.threads,
            self.options,
            gpu,
        )


@dataclass(frozen=True, slots=True)
class DevicesResult(VerifyResult):
    """The result of a pin on several GPUs, and of each of them by its index.

    It is `ok` if all call the pinned choice; `reason` says which do, and why others do not.
    """

    devices: Mapping[str, VerifyResult] = field(default_factory=dict)


def of_devices(results: Mapping[int | None, VerifyResult]) -> VerifyResult:
    """The one result of a pin on all its devices, by the index of the GPU."""
    if len(results) == 1:
        return next(iter(results.values()))
    failed = [result for result in results.values() if not result.ok]
    refuted = next((result for result in failed if result.hash), None)
    shown = refuted or (failed[0] if failed else next(iter(results.values())))
    return DevicesResult(
        ok=not failed,
        reason=_on_devices(results),
        kernel=shown.kernel,
        hash=shown.hash,
        torch=shown.torch,
        rebuilt=all(result.rebuilt for result in results.values()),
        devices={str(gpu): result for gpu, result in results.items()},
    )


def _on_devices(results: Mapping[int | None, VerifyResult]) -> str:
    """`called on 0-2; not called on 3: the generated code calls ...`"""
    by_outcome: dict[str, list[int]] = {}
    for gpu, result in results.items():
        outcome = "called on {}"
        if not result.ok:
            outcome = f"not {'called' if result.hash else 'verified'} on {{}}: "
            outcome += result.reason.replace("{", "{{").replace("}", "}}")
        by_outcome.setdefault(outcome, []).append(gpu or 0)
    ordered = sorted(by_outcome, key=lambda outcome: outcome.startswith("not "))
    return "; ".join(outcome.format(device_ranges(by_outcome[outcome])) for outcome in ordered)


def _kind(asked: PinToVerify) -> tuple[bool, str]:
    """Sort pins that one process can verify next to each other."""
    return is_own(asked.pin.hash), asked.pin.precision


OWN_PROGRAM = "only its own program calls it: rocm-tui verify -- CMD"
TABLE = "another tuner's program takes it from its table, which is not seen from here"
"""Why a worker cannot verify the pin of a Triton kernel."""


def why_not_here(pin: Pin) -> str:
    """Why no worker can prove it; empty where one can."""
    if is_table_op(pin.op):
        return TABLE
    return OWN_PROGRAM if is_kernel(pin.op) else ""


class NotVerified(RocmTuiError):
    """A compile was not seen to call what is pinned; one line says why."""


class Verifying:
    """Verifies pins; its worker ends with the `with` statement unless it is one of the `kept`."""

    def __init__(
        self,
        python: str,
        layout: Layout,
        *,
        env: Mapping[str, str] = os.environ,
        seconds: float | None = None,
        tell: Tell = lambda place, pin, what: None,
        kept: Workers | None = None,
    ) -> None:
        self._python = python
        self._env = env
        self._limits = replace(
            Limits.of_this_machine(),
            seconds=config().budgets.verify if seconds is None else seconds,
        )
        self._tell = tell
        self._keeper = kept or Workers(layout.root, most=1)
        self._ours = kept is None
        self._broken: str | None = None
        self._died_at_start = False
        self._place = 0
        self.workers = 0
        """How many were started."""

    def __enter__(self) -> Verifying:
        return self

    def __exit__(self, *error: object) -> None:
        if self._ours:
            self._keeper.end()

    def results(self, asked: Sequence[PinToVerify]) -> Iterator[tuple[Pin, VerifyResult]]:
        """Yield each pin with its result, as soon as all of its devices have answered."""
        self._place = 1
        done: dict[int, dict[int | None, VerifyResult]] = {}
        for (question, gpu), answers in try_modes(
            [(each, gpu) for each in sorted(asked, key=_kind) for gpu in each.places],
            lambda pair, mode: self._answer(*pair, mode),
            lambda answer: answer.conclusive,
        ):
            results = done.setdefault(id(question), {})
            results[gpu] = _final(answers)
            if len(results) == len(question.places):
                self._place += 1
                yield question.pin, of_devices(results)

    def _answer(self, asked: PinToVerify, gpu: int | None, mode: int) -> VerifyResult:
        """The worker's result; what becomes of the worker instead is a pin that is not verified."""
        if why := why_not_here(asked.pin):
            return _failed(why)
        if self._broken is not None:
            return _failed(self._broken)
        pin, before = asked.pin, self.workers
        died_before, self._died_at_start = self._died_at_start, False
        job = asked.job(mode, gpu)

        def start() -> None:
            self._tell(self._place, pin, "starting a worker")
            self.workers += 1

        def hear(progress: Progress) -> None:
            self._tell(self._place, pin, progress.what)

        try:
            return self._keeper.run(
                job,
                hear,
                python=self._python,
                env=self._env,
                limits=self._limits,
                on_start=start,
            )
        except JobError as error:
            fresh = self.workers > before
            if fresh and isinstance(error, WorkerDied) and error.last is None:
                # It never got as far as the pin. One may have been killed for memory, two in a row
                # mean that none will.
                self._died_at_start = True
                self._broken = str(error) if died_before else None
            return _failed(str(error))


def keep_result(layout: Layout, pin: Pin, result: VerifyResult) -> None:
    """Record with the pin what a worker has seen, if that proves anything."""
    if result.ok or result.hash:
        what = result.reason or f"torch {result.torch}"
        _keep(layout, pin, ok=result.ok, by="verify", torch=result.torch, what=plain(what))


def keep_program(layout: Layout, pin: Pin, *, ok: bool, program: str) -> None:
    """Keep with the pin what the code of a person's own program calls."""
    _keep(layout, pin, ok=ok, by="program", torch="", what=plain(program))


def _keep(layout: Layout, pin: Pin, *, ok: bool, by: str, torch: str, what: str) -> None:
    """Record a proof; what was seen stays true if it cannot be written."""
    with suppress(StoreError, OSError):
        PinStore(layout).keep_proof(pin, ok=ok, by=by, torch=torch, what=brief(what, 200))


def verify(run: RunJob, asked: PinToVerify) -> VerifyResult:
    """Prove one pin in what `run` has, on each of its devices. Raises JobError."""
    pin = asked.pin
    if why := why_not_here(pin):
        return _failed(why)

    def attempt(gpu: int | None, mode: int) -> VerifyResult:
        return run(asked.job(mode, gpu))

    tried = try_modes(asked.places, attempt, lambda answer: answer.conclusive)
    return of_devices({gpu: _final(answers) for gpu, answers in tried})


def _final(answers: Mapping[int, VerifyResult]) -> VerifyResult:
    """Return the conclusive result of the modes that were tried, else the first."""
    sure = (answer for answer in answers.values() if answer.conclusive)
    return next(sure, answers[min(answers)])


def _failed(reason: str) -> VerifyResult:
    return VerifyResult(ok=False, reason=reason, modes=0)

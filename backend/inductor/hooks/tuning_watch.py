"""One tuning as it happens, as events of the selector's steps.

torch passes the choice to each of its callbacks, so a choice leads to its tuning; this also works
in other threads and for selections that are deferred until long after the selector returned.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.inductor.guard import quietly
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.compiling import call_text
from backend.inductor.torch.tuning import ChoiceCaller, Timings
from backend.model.choice import Choice, is_kernel_time
from backend.model.events import (
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    Phase,
    RankAwaited,
    RanksAsked,
    TimesTakenOver,
    TuningFailed,
    TuningStarted,
)
from backend.model.graph import TuningUse
from backend.model.ops import is_flex
from backend.model.options import Options, text_of_options
from backend.model.problem import TuningKey, parse_inputs_key
from backend.model.tuning import Selection

UNRECORDED = "a tuning is not recorded"

_tunings: weakref.WeakKeyDictionary[ChoiceCaller, TuningWatch] = weakref.WeakKeyDictionary()


def tuning_of(choice: ChoiceCaller) -> TuningWatch | None:
    """Return the tuning that `choice` takes part in, if it is recorded."""
    return _tunings.get(choice)


def tuning_of_any(choices: Iterable[ChoiceCaller]) -> TuningWatch | None:
    return next((tuning for choice in choices if (tuning := tuning_of(choice))), None)


def note_time(choice: ChoiceCaller, ms: float, error: BaseException | None = None) -> None:
    """Record the time of `choice` in its tuning, if that is recorded; never raises."""
    with quietly(UNRECORDED):
        tuning = tuning_of(choice)
        if tuning is not None:
            reason = "" if error is None else torch_api.describe(error)
            tuning.timed(choice, float(ms), reason)


def note_failure(choice: ChoiceCaller, phase: Phase, error: BaseException | str) -> None:
    """Record in the tuning of `choice` that it failed, if that is recorded; never raises."""
    with quietly(UNRECORDED):
        tuning = tuning_of(choice)
        if tuning is not None:
            reason = error if isinstance(error, str) else torch_api.describe(error)
            tuning.failed(choice, phase, reason)


def started(
    n: int,
    key: TuningKey,
    choices: Sequence[ChoiceCaller],
    given: Options,
    write: Callable[[Event], None],
) -> TuningWatch:
    """Write the start of a tuning of an op with the options `given`, and return its watch."""
    specs = parse_inputs_key(key.inputs).specs
    write(
        TuningStarted(
            n=n,
            when=time.time(),
            op=key.op,
            inputs=key.inputs,
            precision=key.precision,
            shapes=tuple(spec.sizes for spec in specs),
            strides=tuple(spec.strides for spec in specs),
            dtypes=tuple(spec.dtype for spec in specs),
            device=specs[0].device if specs else "",
            choices=tuple(choice_record(choice) for choice in choices),
            options=call_text() if is_flex(key.op) else text_of_options(given),
        )
    )
    tuning = TuningWatch(n, key, write, given)
    for choice in choices:
        _tunings[choice] = tuning
    return tuning


def choice_record(choice: ChoiceCaller) -> Choice:
    return Choice(
        name=str(choice.name),
        hash=str(choice.hash_key()),
        description=torch_choices.description(choice),
    )


class TuningWatch:
    """Converts the callbacks of one tuning to events, each choice's end once.

    `given` are the op's arguments beside its inputs; `hash` is the selected choice, as soon as it
    is known.
    """

    def __init__(
        self, n: int, key: TuningKey, write: Callable[[Event], None], given: Options = ()
    ) -> None:
        self.given = given
        self.n = n
        self.key = key
        self.hash: str | None = None
        self._write = write
        self._lock = threading.Lock()
        self._compiled: set[str] = set()
        self._ended: set[str] = set()
        self._over = False
        self._timings: dict[str, float] = {}
        self._looked_up = False
        self._benchmark_seconds: float | None = None
        self._precompile_seconds: float | None = None

    # Compiling

    def watch_compiling(self, choices: Sequence[ChoiceCaller]) -> None:
        """Shadow `precompile` of each choice, to record when it is done."""
        for choice in choices:
            precompile = getattr(choice, "precompile", None)
            if precompile is not None:
                choice.precompile = functools.partial(self._precompile, choice, precompile)

    def _precompile(self, choice: ChoiceCaller, precompile: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = precompile()
        with quietly(UNRECORDED):
            self.compiled(choice, time.perf_counter() - begin)
        return result

    def all_compiled(self, times: Timings, seconds: float) -> None:
        """End the compile phase; `times` are the seconds that torch measured for some choices."""
        self._precompile_seconds = seconds
        for choice, its_seconds in times.items():
            self.compiled(choice, its_seconds)

    def compiled(self, choice: ChoiceCaller, seconds: float | None) -> None:
        name = choice.hash_key()
        with self._lock:
            if name in self._compiled:
                return
            self._compiled.add(name)
        self._write(ChoiceCompiled(self.n, name, seconds))

    # Timing

    def benchmarking(self) -> None:
        """Record that the choices are timed from now on."""
        self._write(BenchmarkStarted(self.n, time.time()))

    def measuring(self, seconds: float) -> None:
        """Record that benchmarks, as opposed to a lookup, took `seconds`."""
        self._benchmark_seconds = (self._benchmark_seconds or 0.0) + seconds

    def timed(self, choice: ChoiceCaller, ms: float, reason: str = "") -> None:
        if not is_kernel_time(ms):
            self.failed(
                choice,
                "benchmark",
                reason or f"no time of a kernel: {ms:g} ms; torch's log says more",
            )
        elif self._first(choice):
            self._write(ChoiceTimed(self.n, choice.hash_key(), ms))

    def failed(self, choice: ChoiceCaller, phase: Phase, reason: str) -> None:
        if self._first(choice):
            self._write(ChoiceFailed(self.n, choice.hash_key(), phase, reason))

    def looked_up(self, timings: Timings) -> None:
        """Record the timings that decide. Some of a benchmark may not have been reported yet."""
        self._looked_up = True
        self._timings = {choice.hash_key(): ms for choice, ms in timings.items()}
        if self._benchmark_seconds is not None:
            for choice, ms in timings.items():
                self.timed(choice, ms)

    def deferred_timings(self, timings: Timings) -> None:
        """Record timings without a lookup: the pipelined autotuner benchmarks elsewhere."""
        if not self._looked_up:
            self.measuring(0.0)
            self.looked_up(timings)

    def _first(self, choice: ChoiceCaller) -> bool:
        name = choice.hash_key()
        with self._lock:
            first = name not in self._ended
            self._ended.add(name)
            return first

    # Ranks of a job

    def awaits(self, rank: int | None) -> None:
        """Record that this rank awaits the choice of `rank` from now on; None: of no rank."""
        self._write(RankAwaited(self.n, time.time(), rank))

    def asked(self, answer: RanksAsked) -> None:
        """Record how this rank and the others of its job agreed."""
        self._write(answer)

    def taken_over(
        self, device: int, devices: tuple[int, ...], timings: Mapping[str, float]
    ) -> None:
        """Record that the times of the GPU `device` were also written for other `devices`."""
        self._write(TimesTakenOver(self.n, time.time(), device, devices, timings))

    # End

    def selected(self, choice: ChoiceCaller | None, why: Selection | None = None) -> None:
        """Record the selected choice, or the fastest if torch does not name it."""
        name = choice.hash_key() if choice is not None else self._fastest()
        if name is None or not self._ends():
            return
        self.hash = name
        by = why or ("timing" if self._benchmark_seconds is not None else "cache")
        self._write(
            ChoiceSelected(
                self.n, time.time(), name, by, self._benchmark_seconds, self._precompile_seconds
            )
        )

    def aborted(self, error: BaseException) -> None:
        if self._ends():
            self._write(TuningFailed(self.n, time.time(), torch_api.describe(error)))

    def _ends(self) -> bool:
        with self._lock:
            first, self._over = not self._over, True
            return first

    def _fastest(self) -> str | None:
        return min(self._timings, key=self._timings.__getitem__, default=None)


@dataclass(eq=False)
class GraphCompile:
    """A graph that a thread compiles: its tunings so far, and the compiled graph."""

    tunings: list[TuningWatch] = field(default_factory=list)
    graph: Any = None
    selecting: bool = False


_compiles_of_thread = threading.local()


def _stack() -> list[GraphCompile]:
    stack: list[GraphCompile] = _compiles_of_thread.__dict__.setdefault("compiles", [])
    return stack


def current() -> GraphCompile | None:
    """Return the innermost compile of this thread."""
    stack = _stack()
    return stack[-1] if stack else None


@contextlib.contextmanager
def compiling() -> Iterator[GraphCompile]:
    """A context in which this thread compiles a graph, or loads it from FxGraphCache."""
    this, stack = GraphCompile(), _stack()
    stack.append(this)
    try:
        yield this
    finally:
        stack.remove(this)


@contextlib.contextmanager
def selecting(tuning: TuningWatch | None) -> Iterator[None]:
    """A context of one selection: the graph that this thread compiles, if any, calls the selected
    choice of `tuning`, unless it fails. Nested selections belong to one of the choices."""
    this = current()
    if this is None or this.selecting:
        yield
        return
    this.selecting = True
    try:
        yield
    finally:
        this.selecting = False
    if tuning is not None:
        this.tunings.append(tuning)


def uses_of(tunings: Sequence[TuningWatch]) -> tuple[TuningUse, ...]:
    """Return the selected choices with their counts; None if torch did not name one."""
    counts = Counter((tuning.key, tuning.hash) for tuning in tunings)
    return tuple(
        TuningUse(key.op, key.inputs, key.precision, count, hash_)
        for (key, hash_), count in counts.items()
    )

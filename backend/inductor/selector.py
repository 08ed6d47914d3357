"""Our place in Inductor: the stock selector, watched, and asked for pins first.

It decides nothing but pins. What the watching does wrong is one line on stderr and no more: the
result of a selection is always the stock selector's own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backend.inductor import torch_api, tuning_watch
from backend.inductor.lookup import TunedLookup
from backend.inductor.pinned import PinLookup
from backend.inductor.recording import Recorder
from backend.inductor.saying import say_once
from backend.inductor.torch_api import ChoiceCaller, Timings
from backend.inductor.tuning_watch import TuningWatch, tuning_of, tuning_of_any
from backend.records import Selection, TuningKey


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """The boundary between the watching and the user's compile: nothing of ours gets through."""
    try:
        yield
    except Exception as error:
        say_once(f"a tuning is not recorded: {torch_api.describe(error)}")


def install() -> None:
    """Put a `Selector` in the stock selector's place; once a process."""
    torch_api.set_selector(Selector(Recorder(), PinLookup()))
    torch_api.watch_precompile_errors(_precompile_failed)


class Selector(TunedLookup, torch_api.LazySelector):
    """`AlgorithmSelectorCache` that tells what it does and honours pins."""

    def __init__(self, recorder: Recorder, pins: PinLookup) -> None:
        self._preprocessed = threading.local()
        self._functions: list[Callable[[Any], Any]] = []  # torch 2.8 has none
        super().__init__()
        self._recorder = recorder
        self._pins = pins

    @property
    def parts(self) -> tuple[Recorder, PinLookup]:
        """What another selector needs to go on where this one stops."""
        return self._recorder, self._pins

    # The stock `__call__` begins with the preprocessing functions; pins must see their result.
    # They are run here, and the stock loop, which reads the list once, finds none.

    @property
    def preprocessing_fns(self) -> list[Callable[[Any], Any]]:
        if getattr(self._preprocessed, "done", False):
            self._preprocessed.done = False
            return []
        return self._functions

    @preprocessing_fns.setter
    def preprocessing_fns(self, functions: list[Callable[[Any], Any]]) -> None:
        self._functions = functions

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        for function in self.preprocessing_fns:
            choices = function(choices)
        tuning: TuningWatch | None = None
        why: Selection | None = None
        with watching():
            if torch_api.wants_tuning() or len(choices) > 1:
                key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
                tuning, choices, why = self._open(key, choices)
        self._preprocessed.done = True
        try:
            result = super().__call__(name, choices, input_nodes, layout, *args, **kwargs)
        except BaseException as error:
            with watching():
                if tuning is not None:
                    tuning.aborted(error)
            raise
        finally:
            self._preprocessed.done = False
        with watching():
            if tuning is not None:
                _close(tuning, result, choices, why)
        return result

    def _open(
        self, key: TuningKey, choices: Sequence[ChoiceCaller]
    ) -> tuple[TuningWatch | None, Sequence[ChoiceCaller], Selection | None]:
        """The tuning that begins, the choices to offer, and why one is selected, if known."""
        offered, why = self._offer(key, choices)
        n = self._recorder.next_number()
        return tuning_watch.started(n, key, choices, self._recorder.write), offered, why

    def _offer(
        self, key: TuningKey, choices: Sequence[ChoiceCaller]
    ) -> tuple[Sequence[ChoiceCaller], Selection | None]:
        pin = self._pins.find(key, torch_api.system_hash())
        why: Selection | None = None
        if len(choices) == 1:
            why = "only"
        elif torch_api.deterministic():
            why = "deterministic"
        if pin is None:
            return choices, why
        if why == "deterministic":
            say_once(f"pin {pin.id} ({pin.label}) is shadowed: deterministic mode picks by itself")
            return choices, why
        pinned = [choice for choice in choices if choice.hash_key() == pin.hash]
        if pinned:
            return pinned[:1], "pin"
        say_once(
            f"pin {pin.id} ({pin.label}) is orphaned: {key.op} is not offered that choice here"
        )
        return choices, why

    def make_precompile_fn(self, choices: Any, *args: Any, **kwargs: Any) -> Any:
        tuning: TuningWatch | None = None
        with watching():
            tuning = tuning_of_any(choices)
            if tuning is not None:
                tuning.watch_compiling(choices)
        precompile = super().make_precompile_fn(choices, *args, **kwargs)
        if tuning is None or getattr(precompile, "__name__", "") == "no_op":
            return precompile  # nothing to compile: cached, or torch leaves this phase out
        return _Precompile(precompile, tuning)

    def lookup(self, choices: Any, op: Any, inputs: Any, benchmark: Any, **kwargs: Any) -> Any:
        tuning: TuningWatch | None = None
        with watching():
            tuning = tuning_of_any(choices)
        if benchmark is None or tuning is None:
            return super().lookup(choices, op, inputs, benchmark, **kwargs)

        def measured(candidates: Any) -> Any:
            begin = time.perf_counter()
            try:
                return benchmark(candidates)
            finally:
                tuning.measuring(time.perf_counter() - begin)

        timings = super().lookup(choices, op, inputs, measured, **kwargs)
        with watching():
            tuning.looked_up(timings)
        return timings

    @classmethod
    def benchmark_choice(cls, choice: ChoiceCaller, *args: Any, **kwargs: Any) -> Any:
        return _benchmarked(choice, super().benchmark_choice, args, kwargs)

    @classmethod
    def benchmark_collective_choice(cls, choice: ChoiceCaller, *args: Any, **kwargs: Any) -> Any:
        return _benchmarked(choice, super().benchmark_collective_choice, args, kwargs)

    @classmethod
    def benchmark_in_sub_process(cls, *args: Any, **kwargs: Any) -> Any:
        with watching():
            torch_api.watch_tuning_processes(_timed)
        return super().benchmark_in_sub_process(*args, **kwargs)


class _Precompile:
    """The function that compiles all choices, timed. torch reads `precompile_key` from it."""

    def __init__(self, function: Callable[[], Any], tuning: TuningWatch) -> None:
        self._function = function
        self._tuning = tuning
        self.precompile_key = getattr(function, "precompile_key", None)

    def __call__(self) -> Any:
        begin = time.perf_counter()
        times = self._function()
        with watching():
            self._tuning.all_compiled(times or {}, time.perf_counter() - begin)
        return times


def _close(
    tuning: TuningWatch, result: Any, choices: Sequence[ChoiceCaller], why: Selection | None
) -> None:
    choice = torch_api.selected_choice(result)
    if choice is None and len(choices) == 1:
        choice = choices[0]  # torch 2.8 and 2.9 tell only the node
    if choice is None and torch_api.watch_deferred(
        result, choices, _shielded(tuning.deferred_timings), _shielded(tuning.selected)
    ):
        return
    tuning.selected(choice, why)


def _shielded(action: Callable[[Any], None]) -> Callable[[Any], None]:
    def shielded(value: Any) -> None:
        with watching():
            action(value)

    return shielded


def _benchmarked(
    choice: ChoiceCaller, benchmark: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    try:
        ms = benchmark(choice, *args, **kwargs)
    except Exception as error:
        with watching():
            tuning = tuning_of(choice)
            if tuning is not None:
                tuning.failed(choice, "benchmark", torch_api.describe(error))
        raise
    _timed(choice, ms, "")
    return ms


def _timed(choice: ChoiceCaller, ms: float, reason: str) -> None:
    with watching():
        tuning = tuning_of(choice)
        if tuning is not None:
            tuning.timed(choice, float(ms), reason)


def _precompile_failed(choice: ChoiceCaller, error: BaseException) -> None:
    with watching():
        tuning = tuning_of(choice)
        if tuning is not None:
            tuning.failed(choice, "precompile", torch_api.describe(error))


__all__ = ["Selector", "Timings", "install"]

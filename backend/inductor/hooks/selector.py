"""Our replacement of Inductor's selector: the stock selector, observed; pins are looked up first.

It decides nothing but pins, whose file is read again only if it changed on disk. Its failures are
one line on stderr: the result of a selection is then the stock selector's own. The persistent cache
is handled in `hooks/lookup.py`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor.guard import Entrance, Stock, beside, quietly, say_once, shielded, when_aside
from backend.inductor.hooks import agreement, tuning_watch
from backend.inductor.hooks.lookup import TunedLookup, taken_over
from backend.inductor.hooks.pins import PinLookup
from backend.inductor.hooks.recording import Recorder, recorder
from backend.inductor.hooks.tuning_watch import (
    UNRECORDED,
    TuningWatch,
    note_failure,
    note_time,
    tuning_of_any,
)
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller, Timings
from backend.model.problem import TuningKey
from backend.model.tuning import Selection


def install() -> None:
    """Replace the stock selector by a `Selector`; once per process."""
    selector = Selector(recorder(), PinLookup())
    torch_api.watch_precompile_errors(
        lambda choice, error: note_failure(choice, "precompile", error)
    )
    torch_api.set_selector(selector)


class Selector(TunedLookup, torch_api.LazySelector):
    """`AlgorithmSelectorCache` that records its calls and honours pins. Methods of torch have
    torch's names; ours get the stock one first (see `guard.Entrance`)."""

    def __init__(self, recorder: Recorder, pins: PinLookup) -> None:
        self._preprocessed = threading.local()
        self._functions: list[Callable[[Any], Any]] = []  # torch 2.8 does not set it
        super().__init__()
        self._recorder = recorder
        self._pins = pins
        when_aside(self._be_stock)

    def _be_stock(self, reason: str) -> None:
        """Set everything that the stock constructor sets, since our code no longer runs."""
        self.__dict__["system"] = self.get_system()

    @property
    def parts(self) -> tuple[Recorder, PinLookup]:
        """The recorder and the pins, for a selector that replaces this one."""
        return self._recorder, self._pins

    # The stock `__call__` begins with the preprocessing functions; pins need their result.
    # They are run here, and the stock loop, which reads the list once, gets an empty one.

    @property
    def preprocessing_fns(self) -> list[Callable[[Any], Any]]:
        functions: list[Callable[[Any], Any]] = beside(lambda: self._functions, self._to_run)
        return functions  # the list itself: torch appends to it

    @preprocessing_fns.setter
    def preprocessing_fns(self, functions: list[Callable[[Any], Any]]) -> None:
        self._functions = functions

    def _to_run(self, stock: Stock) -> list[Callable[[Any], Any]]:
        if getattr(self._preprocessed, "done", False):
            self._preprocessed.done = False
            return []
        return self._functions

    __call__ = Entrance("_select")

    def _select(
        self,
        stock: Stock,
        name: str,
        choices: Any,
        input_nodes: Any,
        layout: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        for function in self.preprocessing_fns:
            choices = stock.theirs(function, choices)
        tuning: TuningWatch | None = None
        turn: agreement.RankTurn | None = None
        why: Selection | None = None
        if torch_api.wants_tuning() or len(choices) > 1:
            key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
            offered, why = self._offer(key, choices)
            with quietly(UNRECORDED):
                n = self._recorder.next_number()
                given = torch_choices.options_of_lowering(name, choices, input_nodes)
                tuning = tuning_watch.started(n, key, choices, given, self._recorder.write)
            with quietly(agreement.UNAGREED):
                turn = self._turn(tuning, offered, why, layout, kwargs)
            choices = offered if turn is None else turn.choices
        self._preprocessed.done = True
        try:
            with tuning_watch.selecting(tuning), turn or contextlib.nullcontext():
                result = stock(name, choices, input_nodes, layout, *args, **kwargs)
        except BaseException as error:
            with quietly(UNRECORDED):
                if tuning is not None:
                    tuning.aborted(error)
            raise
        finally:
            self._preprocessed.done = False
        with quietly(UNRECORDED):
            if tuning is not None:
                _close(tuning, result, choices, why if turn is None else turn.report() or why)
        return result

    def _turn(
        self,
        tuning: TuningWatch | None,
        offered: Sequence[ChoiceCaller],
        why: Selection | None,
        layout: Any,
        options: dict[str, Any],
    ) -> agreement.RankTurn | None:
        """Return the turn among the ranks of a job, if they choose this problem together."""
        ranks = agreement.agreement()
        if ranks is None or tuning is None or why in ("only", "deterministic"):
            return None
        if not torch_api.wants_tuning() or torch_api.leaves_no_choice_to_ranks(options):
            return None
        turn = ranks.turn(tuning, offered, offered[0] if why == "pin" else None, layout)
        if turn is not None and turn.together and "return_multi_template" in options:
            # Deferred fusions would be timed and decided by each rank alone.
            options["return_multi_template"] = False
        return turn

    def _offer(
        self, key: TuningKey, choices: Sequence[ChoiceCaller]
    ) -> tuple[Sequence[ChoiceCaller], Selection | None]:
        """Return the choices to offer, and why one of them is selected, if known."""
        pin = self._pins.find(key, torch_api.system_hash())
        why: Selection | None = None
        if len(choices) == 1:
            why = "only"
        elif torch_api.deterministic():
            why = "deterministic"
        if pin is None:
            return choices, why
        if why == "deterministic":
            say_once(f"pin {pin.id} ({pin.label}) is shadowed: deterministic mode ignores pins")
            return choices, why
        pinned = [choice for choice in choices if choice.hash_key() in pin.hashes]
        if pinned:
            return pinned[:1], "pin"
        say_once(
            f"pin {pin.id} ({pin.label}) does not hold here: this {key.op} is not offered that "
            "choice (other threads, sizes that are dynamic, another activation, ...) and takes its "
            "own best"
        )
        return choices, why

    make_precompile_fn = Entrance("_make_precompile_fn")

    def _make_precompile_fn(self, stock: Stock, choices: Any, *args: Any, **kwargs: Any) -> Any:
        tuning = tuning_of_any(choices)
        if tuning is not None:
            tuning.watch_compiling(choices)
        precompile = stock(choices, *args, **kwargs)
        if tuning is None or getattr(precompile, "__name__", "") == "no_op":
            return precompile  # nothing to compile: cached, or torch leaves this phase out
        return _Precompile(precompile, tuning)

    prescreen_choices = Entrance("_prescreened")

    @staticmethod
    def _prescreened(stock: Stock, *args: Any, **kwargs: Any) -> Any:
        candidates = stock(*args, **kwargs)
        if candidates:
            agreement.screening()
        return candidates

    lookup = Entrance("_lookup")

    def _lookup(
        self, stock: Stock, choices: Any, op: Any, inputs: Any, benchmark: Any, **kwargs: Any
    ) -> Any:
        tuning = tuning_of_any(choices)
        if benchmark is None or tuning is None:
            return stock(choices, op, inputs, benchmark, **kwargs)

        def measured(candidates: Any) -> Any:
            begin = time.perf_counter()
            with quietly(UNRECORDED):
                tuning.benchmarking()
            try:
                return benchmark(candidates)
            finally:
                with quietly(UNRECORDED):
                    tuning.measuring(time.perf_counter() - begin)

        timings = stock(choices, op, inputs, measured, **kwargs)
        with quietly(UNRECORDED):
            tuning.looked_up(timings)
            for times in taken_over():
                tuning.taken_over(*times)
        return self._settled(tuning, timings)

    @staticmethod
    def _settled(tuning: TuningWatch, timings: Timings) -> Timings:
        """Return the timings that decide after consulting the other ranks of the job."""
        with quietly(agreement.UNAGREED):
            settled = agreement.settled(tuning, timings)
            if settled is not timings:
                tuning.looked_up(settled)
            return settled
        return timings

    benchmark_choice = Entrance("_benchmarked")
    benchmark_collective_choice = Entrance("_benchmarked")

    @staticmethod
    def _benchmarked(stock: Stock, choice: ChoiceCaller, *args: Any, **kwargs: Any) -> Any:
        try:
            ms = stock(choice, *args, **kwargs)
        except Exception as error:
            note_failure(choice, "benchmark", error)
            raise
        note_time(choice, ms)
        return ms

    @classmethod
    def benchmark_in_sub_process(cls, *args: Any, **kwargs: Any) -> Any:
        with quietly(UNRECORDED):
            torch_api.watch_tuning_processes(note_time)
        return super().benchmark_in_sub_process(*args, **kwargs)


class _Precompile:
    """The function that compiles all choices, timed. torch reads `precompile_key` from it."""

    def __init__(self, function: Callable[[], Any], tuning: TuningWatch) -> None:
        self._function = function
        self._tuning = tuning
        self.precompile_key = getattr(function, "precompile_key", None)

    def __call__(self) -> Any:
        return beside(self._function, self._compile)

    def _compile(self, stock: Stock) -> Any:
        begin = time.perf_counter()
        times = stock()
        with quietly(UNRECORDED):
            self._tuning.all_compiled(times or {}, time.perf_counter() - begin)
        return times


def _close(
    tuning: TuningWatch, result: Any, choices: Sequence[ChoiceCaller], why: Selection | None
) -> None:
    choice = torch_api.selected_choice(result)
    choice = getattr(choice, "replaced_by", choice)
    if choice is None and len(choices) == 1:
        choice = choices[0]  # torch 2.8 and 2.9 return only the node
    if choice is None and torch_api.watch_deferred(
        result,
        choices,
        shielded(UNRECORDED, tuning.deferred_timings),
        shielded(UNRECORDED, tuning.selected),
    ):
        return
    tuning.selected(choice, why)

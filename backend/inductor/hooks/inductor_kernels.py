"""Triton kernels that Inductor launches itself: each tuning becomes events, and a pinned kernel is
not tuned.

A tuning begins with the first timed config, so a kernel with a single config, or with a stored best
config, has none. Processes that only compile use this for the pins: they compile no rival of a
pinned config.

For `rocm-tui verify -- CMD` each first launch, and whether the process timed any config for it, is
one line in a file of the command's folder (`install_launch_log`).
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.inductor.guard import Stock, beside, describe, quietly, say_once
from backend.inductor.hooks import environment, triton_autotune
from backend.inductor.hooks.environment import LAUNCHES_LOST
from backend.inductor.hooks.pins import PinLookup
from backend.inductor.hooks.recording import Recorder
from backend.inductor.torch import autotuner as torch_api
from backend.inductor.torch.autotuner import Autotuner, Config, Launcher
from backend.model.choice import Choice
from backend.model.events import (
    BenchmarkStarted,
    ChoiceAdded,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Phase,
    TuningFailed,
    TuningStarted,
)
from backend.model.inductor_kernel import PRECISION
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, Selection

if TYPE_CHECKING:  # heavy, and few programs request it
    from backend.inductor.kernel_bench import KernelBench

UNRECORDED = "the tuning of a Triton kernel is not recorded"
Undo = Callable[[Autotuner], None]


def install(recorder: Recorder) -> None:
    """Record tunings and honour pins from now on. Raises AttributeError without a torch method."""
    hooks = _Hooks(recorder, PinLookup())
    owner = torch_api.tuner()
    places: dict[str, Callable[..., Any]] = {
        torch_api.COMPILE: hooks.compile,
        torch_api.LOAD: hooks.load,
        torch_api.SCALE: hooks.scale,
        torch_api.TUNE: functools.partial(hooks.tune, torch_api.TUNE),
        torch_api.DESCEND: hooks.descend,
        torch_api.BENCH: hooks.bench,
    }
    if hasattr(owner, torch_api.COMBINE):
        places[torch_api.COMBINE] = functools.partial(hooks.tune, torch_api.COMBINE)
    stocks = {
        name: getattr(owner, name) for name in places
    }  # all of them, before anything is replaced
    torch_api.watch_loading(describe)
    for name, ours in places.items():
        setattr(owner, name, _stand_in(stocks[name], ours))


def _stand_in(stock: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        return beside(functools.partial(stock, self), _of(ours, self), *args, **kwargs)

    return method


def _of(ours: Callable[..., Any], autotuner: Autotuner) -> Callable[..., Any]:
    return lambda stock, *args, **kwargs: ours(stock, autotuner, *args, **kwargs)


class _Hooks:
    """The code run beside each method of the autotuner."""

    def __init__(self, recorder: Recorder, pins: PinLookup) -> None:
        self._recorder = recorder
        self._pins = pins
        self._tunings: weakref.WeakKeyDictionary[Autotuner, KernelWatch]
        self._tunings = weakref.WeakKeyDictionary()
        self._pinned: weakref.WeakKeyDictionary[Autotuner, tuple[Pin, Undo]]
        self._pinned = weakref.WeakKeyDictionary()
        self._free: weakref.WeakSet[Autotuner] = weakref.WeakSet()
        self._measures = triton_autotune.measuring_wanted()

    # Compiling and pins

    def compile(self, stock: Stock, autotuner: Autotuner) -> Any:
        pin = self._pin_of(autotuner)
        undo = None if pin is None else self._keep_only(autotuner, pin)
        if pin is None or undo is None:
            return stock()
        try:
            result = stock()
        except Exception as error:
            if not torch_api.is_unusable(error):
                raise
            self._give_up(autotuner, pin, error)
            undo(autotuner)
            return stock()
        self._pinned[autotuner] = pin, undo
        return result

    def load(self, stock: Stock, autotuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs.get("warm_cache_only") or self._pin_of(autotuner) is None:
            return stock(*args, **kwargs)
        # A compiled graph that contained this kernel would keep the pin after its release.
        kwargs["static_triton_bundle_key"] = None
        why = "it cannot be loaded as it is"
        try:
            result = stock(**kwargs)
            if autotuner not in self._pinned:
                return result
            pin, undo = self._pinned[autotuner]
            config = torch_api.launched(autotuner)
            if config is not None and torch_api.named(config)[0] == pin.hash:
                with quietly(UNRECORDED):
                    KernelWatch(autotuner, self._recorder).pinned(config)
                return result
        except Exception as error:
            if autotuner not in self._pinned or not torch_api.is_unusable(error):
                raise
            (pin, undo), why = self._pinned[autotuner], describe(error)
        del self._pinned[autotuner]
        self._give_up(autotuner, pin, why)
        undo(autotuner)
        torch_api.start_over(autotuner)
        return stock(**kwargs)

    def scale(self, stock: Stock, autotuner: Autotuner) -> Any:
        """Skip configs that stock derives from others, for kernels that take many registers."""
        return None if autotuner in self._pinned else stock()

    def _pin_of(self, autotuner: Autotuner) -> Pin | None:
        if autotuner in self._free or not self._pins.of_kernels():
            return None
        pin = self._pins.find_kernel(torch_api.kernel_of_tuner(autotuner))
        if pin is not None and torch_api.is_deterministic(autotuner):
            say_once(f"pin {pin.id} ({pin.label}) is shadowed: deterministic mode ignores pins")
            return None
        return pin

    def _keep_only(self, autotuner: Autotuner, pin: Pin) -> Undo | None:
        try:
            undo = torch_api.keep_only(autotuner, pin.hash, pin.config)
        except Exception as error:
            self._give_up(autotuner, pin, error)
            return None
        if undo is None:
            self._give_up(autotuner, pin, "this kernel is not offered that config")
        return undo

    def _give_up(self, autotuner: Autotuner, pin: Pin, why: BaseException | str) -> None:
        """Continue without the pin; a compile-only process leaves the report to its parent."""
        self._free.add(autotuner)
        if not environment.is_compile_worker():
            reason = why if isinstance(why, str) else describe(why)
            say_once(f"pin {pin.id} ({pin.label}) does not hold in this {pin.op} kernel: {reason}")

    # Tuning

    def tune(self, step: str, stock: Stock, autotuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        return self._watched(step, stock, autotuner, args, kwargs)

    def descend(self, stock: Stock, autotuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        watch = self._watch(autotuner)

        def tries(config: Config, best: Config) -> None:
            with quietly(UNRECORDED):
                watch.added(config, best)

        def fails(config: Config, error: BaseException) -> None:
            with quietly(UNRECORDED):
                watch.failed(config, "precompile", describe(error))

        def takes(config: Config, ms: float) -> None:
            with quietly(UNRECORDED):
                if math.isfinite(ms):
                    watch.timed(config, ms)

        with torch_api.descending(autotuner, tries, fails, takes):
            return self._watched(torch_api.DESCEND, stock, autotuner, args, kwargs)

    def _watched(
        self, step: str, stock: Stock, autotuner: Autotuner, args: Sequence[Any], kwargs: Any
    ) -> Any:
        watch = self._watch(autotuner)
        begin = time.perf_counter()
        try:
            result = stock(*args, **kwargs)
        except BaseException as error:
            self._tunings.pop(autotuner, None)
            with quietly(UNRECORDED):
                watch.aborted(error)
            raise
        with quietly(UNRECORDED):
            watch.seconds += time.perf_counter() - begin
            if step == torch_api.TUNE:
                winner, more = torch_api.launched(autotuner), torch_api.goes_on(autotuner, step)
            else:  # these return the launcher for later runs
                winner = result.config
                more = step == torch_api.COMBINE and torch_api.goes_on(autotuner, step)
            if not more:
                self._tunings.pop(autotuner, None)
                watch.selected(winner)
                if self._measures:
                    given = args if step == torch_api.TUNE else args[1:]  # a launcher comes first
                    _measure(self._recorder, autotuner, watch.times, given, kwargs)
        return result

    def bench(
        self, stock: Stock, autotuner: Autotuner, launcher: Launcher, *args: Any, **kwargs: Any
    ) -> Any:
        watch = self._tunings.get(autotuner)
        if watch is None:  # a measurement, not a tuning
            return stock(launcher, *args, **kwargs)
        with quietly(UNRECORDED):
            watch.benchmarking()
        try:
            ms = stock(launcher, *args, **kwargs)
        except Exception as error:
            with quietly(UNRECORDED):
                watch.failed(launcher.config, "benchmark", describe(error))
            raise
        with quietly(UNRECORDED):
            if math.isfinite(ms):
                watch.timed(launcher.config, float(ms))
            else:
                why = torch_api.why_infinite(autotuner, launcher)
                watch.failed(launcher.config, "benchmark", why)
        return ms

    def _watch(self, autotuner: Autotuner) -> KernelWatch:
        watch = self._tunings.get(autotuner)
        if watch is None:
            watch = self._tunings[autotuner] = KernelWatch(autotuner, self._recorder)
        return watch


def _measure(
    recorder: Recorder,
    autotuner: Autotuner,
    timed: Mapping[str, tuple[Config, float]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Measure a kernel with these arguments, whose configs took `timed` milliseconds, by hash."""

    @contextmanager
    def launching(hashes: Sequence[str], failed: dict[str, str]) -> Iterator[KernelBench]:
        from backend.inductor.kernel_bench import Arguments, ConfigLaunch, KernelBench

        def refused(hash: str, error: Exception) -> None:
            failed[hash] = f"{type(error).__name__}: {error}"

        arguments = Arguments(args, kwargs)  # before anything is compiled
        configs = {hash: timed[hash][0] for hash in hashes}
        with torch_api.launchers(autotuner, configs, refused) as by_hash:
            prepare = torch_api.before_launch(autotuner)
            launches = {hash: ConfigLaunch(launch, prepare) for hash, launch in by_hash.items()}
            yield KernelBench(launches, arguments)

    kernel = torch_api.kernel_of_tuner(autotuner)
    if torch_api.generating():
        return  # a trial of a fusion, which no program launches
    names = {hash: torch_api.named(config)[1] for hash, (config, _) in timed.items()}
    times = {hash: ms for hash, (_, ms) in timed.items()}
    key = TuningKey(kernel.op, kernel.inputs, PRECISION)
    triton_autotune.measure(recorder, key, names, times, launching)


class KernelWatch:
    """Converts one tuning of a kernel to events; nothing is written before a config is timed."""

    def __init__(self, autotuner: Autotuner, recorder: Recorder) -> None:
        self.seconds = 0.0
        self.times: dict[str, tuple[Config, float]] = {}
        self._autotuner = weakref.ref(autotuner)
        self._write = recorder.write
        self._number = recorder.next_number
        self._lock = threading.Lock()
        self._n = 0
        self._hashes: set[str] = set()
        self._ended: set[str] = set()

    def benchmarking(self) -> None:
        """Note that a config is timed next."""
        if not self._n:
            self._start()
            self._write(BenchmarkStarted(self._n, time.time()))

    def _start(self) -> None:
        autotuner = self._autotuner()
        kernel = torch_api.kernel_of_tuner(autotuner)
        refused = list(torch_api.not_loaded(autotuner))
        configs = [*torch_api.loaded(autotuner), *(config for config, _ in refused)]
        choices = [_choice(config) for config in configs]
        self._n = self._number()
        self._hashes.update(choice.hash or "" for choice in choices)
        self._write(
            TuningStarted(
                n=self._n,
                when=time.time(),
                op=kernel.op,
                inputs=kernel.inputs,
                precision=PRECISION,
                shapes=(),
                strides=(),
                dtypes=kernel.dtypes,
                device=kernel.device_type,
                choices=tuple(choices),
                kernel=kernel.name,
                source=torch_api.source_of_tuner(autotuner),
            )
        )
        for config, why in refused:
            self.failed(config, "precompile", why)

    def added(self, config: Config, origin: Config) -> None:
        """Record an additional config, one step away from `origin`."""
        choice = _choice(config)
        if not self._n or choice.hash in self._hashes:
            return
        self._hashes.add(choice.hash or "")
        moved = _moved(torch_api.members(origin), torch_api.members(config))
        self._write(ChoiceAdded(self._n, choice, torch_api.named(origin)[0], moved))

    def timed(self, config: Config, ms: float) -> None:
        if self._n and self._first(config):
            hash_ = torch_api.named(config)[0]
            self.times[hash_] = config, ms
            self._write(ChoiceTimed(self._n, hash_, ms))

    def failed(self, config: Config, phase: Phase, reason: str) -> None:
        if self._n and self._first(config):
            self._write(ChoiceFailed(self._n, torch_api.named(config)[0], phase, reason))

    def selected(self, config: Config) -> None:
        """Report the end of a tuning in which something was timed."""
        autotuner = self._autotuner()
        if self._n and autotuner is not None:
            self._end(config, "timing", self.seconds, torch_api.compile_seconds(autotuner))

    def pinned(self, config: Config) -> None:
        """Record a config that a pin selected, without timing."""
        self._start()
        self._end(config, "pin", None, None)

    def aborted(self, error: BaseException) -> None:
        if self._n:
            self._write(TuningFailed(self._n, time.time(), describe(error)))

    def _end(
        self, config: Config, why: Selection, seconds: float | None, compiling: float | None
    ) -> None:
        hash_ = torch_api.named(config)[0]
        self._write(ChoiceSelected(self._n, time.time(), hash_, why, seconds, compiling))

    def _first(self, config: Config) -> bool:
        name = torch_api.named(config)[0]
        with self._lock:
            if name in self._ended:
                return False
            self._ended.add(name)
            return True


def _choice(config: Config) -> Choice:
    hash_, name, text = torch_api.named(config)
    return Choice(name=name, hash=hash_, description=text)


def _moved(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} to {new.get(name)}" for name in names)


def install_launch_log(folder: Path) -> None:
    """Log the first launch of each kernel. Raises AttributeError without a method in torch."""
    owner: Any = torch_api.tuner()
    logged: weakref.WeakSet[Autotuner] = weakref.WeakSet()
    timed: weakref.WeakSet[Autotuner] = weakref.WeakSet()
    stock_run, stock_bench = getattr(owner, torch_api.RUN), getattr(owner, torch_api.BENCH)

    @functools.wraps(stock_bench)
    def bench(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        timed.add(self)
        return stock_bench(self, *args, **kwargs)

    @functools.wraps(stock_run)
    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        result = stock_run(self, *args, **kwargs)
        if self not in logged:
            with quietly(LAUNCHES_LOST):
                _log_launch(folder, self, self not in timed)
                logged.add(self)  # a launch that could not be written is written the next time
        return result

    setattr(owner, torch_api.BENCH, bench)
    setattr(owner, torch_api.RUN, run)


def _log_launch(folder: Path, autotuner: Autotuner, read: bool) -> None:
    """Write one line for the latest launch; each process writes to its own file."""
    kernel, config = torch_api.kernel_of_tuner(autotuner), torch_api.launched(autotuner)
    if config is None:
        return
    line = {
        "op": kernel.op,
        "inputs": kernel.inputs,
        "config": torch_api.named(config)[0],
        "read": read,
    }
    with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")

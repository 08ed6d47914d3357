"""Kernels of `@triton.autotune` in this process: the selected configs, their origin, and the times
of all configs, whether or not Triton stores them in a file. Each tuning becomes events once it is
done; if a file had the config, nothing was timed, and the event says so. For `rocm-tui verify --
CMD` each first launch is one line in a file of the command's folder.

Checked with Triton 3.4, 3.6 and 3.9, `runtime/autotuner.py`: `run` launches the config in
`self.cache` under its key; if there is none, `check_disk_cache` reads the file that
`get_cache_manager` names, else the configs are timed, each by `_bench`. The launched config is
recorded. (3.9 has a listener, `knobs.autotuning.listener`, which is left to the program.)
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from backend.cache.configs import described, hash_of
from backend.inductor.guard import quietly, say_once
from backend.inductor.hooks import environment
from backend.inductor.hooks.environment import LAUNCHES_LOST
from backend.inductor.hooks.recording import Recorder
from backend.model.choice import Choice
from backend.model.events import (
    BenchmarkStarted,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    TuningMeasured,
    TuningStarted,
)
from backend.model.inductor_kernel import TRITON, dtypes_of, inputs_of
from backend.model.problem import TuningKey

if TYPE_CHECKING:
    from backend.inductor.kernel_bench import KernelBench

CACHE = "triton.runtime.cache"
Hear = Callable[[Any, str | None, bool], None]
"""Receives a launch: the autotuner, the folder of Triton's cache that was read, if any, and whether
configs were timed for it."""


@dataclass(frozen=True, slots=True)
class TunedCall:
    """A call of a kernel that was tuned for it: the autotuner, the folder of Triton's cache, the
    arguments, and, by name, the previous content of the arguments that the tuner restores after
    each launch."""

    kernel: Any
    digest: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    stood: Mapping[str, Any]


After = Callable[[TunedCall], None]


class _Call(threading.local):
    """The current launch in this thread: the folder of Triton's cache that it read."""

    digest: str | None = None
    timed = False
    asking = False
    stood: Mapping[str, Any] = MappingProxyType({})


def wrap_autotuner(autotuner: Any, hear: Hear, lost: str, after: After | None = None) -> None:
    """Call `hear` after each first launch from now on, and also `after` if configs were timed for
    it. `lost` names what is lost if they fail. Raises AttributeError on an older Triton."""
    call = _Call()
    owner = autotuner.Autotuner
    cache: Any = importlib.import_module(CACHE)
    stock_run, stock_check, stock_bench = owner.run, owner.check_disk_cache, owner._bench
    stock_manager = cache.get_cache_manager

    @functools.wraps(stock_manager)
    def get_cache_manager(key: str, *rest: Any) -> Any:
        if call.asking:
            with quietly(lost):
                call.digest = base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")
            call.asking = False
        return stock_manager(key, *rest)

    @functools.wraps(stock_check)
    def check_disk_cache(self: Any, *args: Any, **kwargs: Any) -> Any:
        call.asking = True
        return stock_check(self, *args, **kwargs)

    @functools.wraps(stock_bench)
    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        if after is not None and not call.timed:
            with quietly(lost):
                call.stood = _restored_values(self)
        call.asking, call.timed = False, True  # from here on kernels are compiled
        return stock_bench(self, *args, **kwargs)

    @functools.wraps(stock_run)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        count, before = _config_count(self), (call.digest, call.timed, call.stood)
        call.digest, call.timed, call.asking, call.stood = None, False, False, {}
        try:
            result = stock_run(self, *args, **kwargs)
            if _config_count(self) != count:
                with quietly(lost):
                    hear(self, call.digest, call.timed)
                    if after is not None and call.timed:
                        after(TunedCall(self, call.digest, args, kwargs, call.stood))
            return result
        finally:
            call.digest, call.timed, call.stood = before

    cache.get_cache_manager = get_cache_manager
    if hasattr(autotuner, "get_cache_manager"):  # 3.4 looks it up each time
        autotuner.get_cache_manager = get_cache_manager
    owner.check_disk_cache = check_disk_cache
    owner._bench = bench
    owner.run = run


def _config_count(kernel: Any) -> int:
    """Return the number of keys with a config; a program may have replaced the cache."""
    try:
        return len(kernel.cache)
    except Exception:
        return 0


def _restored_values(kernel: Any) -> dict[str, Any]:
    """Return the content of restored arguments before the first config is timed."""
    names = [name for name in kernel.restore_value if hasattr(kernel.nargs.get(name), "clone")]
    return {name: kernel.nargs[name].detach().clone() for name in names}


def key_of(kernel: Any) -> list[object]:
    """Return the key values of an autotuner's latest tuning, as in its file."""
    plain = (str, int, float, bool, type(None))
    key = next(reversed(kernel.cache))
    return [part if isinstance(part, plain) else str(part) for part in key]


def _log_launch(
    folder: Path, unwritten: dict[str, None], kernel: Any, digest: str | None, timed: bool
) -> None:
    """Write one line for the latest launch, and the lines that could not be written before; each
    process writes to its own file."""
    members = dict(vars(kernel.best_config), pre_hook=None)
    line = {
        "kernel": kernel.base_fn.__name__,
        "key": key_of(kernel),
        "digest": digest,
        "read": digest is not None and not timed,
        "config": hash_of(members),
    }
    unwritten[json.dumps(line) + "\n"] = None
    lines = list(unwritten)
    with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
        stream.writelines(lines)
    for text in lines:
        unwritten.pop(text, None)  # another thread may have written it, too


UNRECORDED = "a tuning of @triton.autotune is not recorded"
FAILED = "it cannot be compiled, or needs more than the device has"


def install_launch_log(autotuner: Any, folder: Path) -> None:
    """Write each first launch to the folder. Raises AttributeError on an older Triton."""
    # No kernel is heard of twice, so a line that cannot be written is kept for the next launch.
    log = functools.partial(_log_launch, folder, dict[str, None]())
    wrap_autotuner(autotuner, log, LAUNCHES_LOST)


def install(autotuner: Any, recorder: Recorder) -> None:
    """Record from now on. Raises AttributeError on an older Triton."""
    measures = functools.partial(_measure, recorder) if measuring_wanted() else None
    wrap_autotuner(autotuner, functools.partial(_record, recorder), UNRECORDED, measures)


def _record(recorder: Recorder, kernel: Any, digest: str | None, timed: bool) -> None:
    times: Mapping[Any, Any] = kernel.configs_timings if timed or digest else {}
    if not times:
        return  # only one config was left, so there was no choice
    named = {config: described(dict(vars(config), pre_hook=None)) for config in times}
    key = key_of(kernel)
    spent = float(kernel.bench_time) if timed else 0.0
    n, now = recorder.next_of_triton(), time.time()
    recorder.write(
        TuningStarted(
            n=n,
            when=now - spent,
            op=TRITON,
            inputs=_inputs(kernel, digest),
            precision="",
            shapes=(),
            strides=(),
            dtypes=dtypes_of(key),
            device="cuda",  # torch's name of every device that Triton is tuned on
            choices=tuple(Choice(name, hash_, None, text) for hash_, name, text in named.values()),
            kernel=kernel.base_fn.__name__,
        )
    )
    if timed:
        recorder.write(BenchmarkStarted(n, now - spent))
        for config, (hash_, _, _) in named.items():
            ms = _milliseconds(times[config])
            failed = ChoiceFailed(n, hash_, "benchmark", FAILED)
            recorder.write(ChoiceTimed(n, hash_, ms) if math.isfinite(ms) else failed)
    best = described(dict(vars(kernel.best_config), pre_hook=None))[0]
    seconds = spent if timed else None
    recorder.write(ChoiceSelected(n, now, best, "timing" if timed else "cache", seconds, None))


def _inputs(kernel: Any, digest: str | None) -> str:
    return inputs_of(kernel.base_fn.__name__[:150], key_of(kernel), digest or "")


def _measure(recorder: Recorder, called: TunedCall) -> None:
    """Measure the configs of a just tuned kernel, with the arguments of that call."""
    kernel = called.kernel
    configs = {described(dict(vars(c), pre_hook=None)): c for c in kernel.configs_timings}
    times = {
        named[0]: ms
        for named, config in configs.items()
        if math.isfinite(ms := _milliseconds(kernel.configs_timings[config]))
    }
    measure(
        recorder,
        TuningKey(TRITON, _inputs(kernel, called.digest), ""),
        {hash_: name for hash_, name, _ in configs},
        times,
        _launching(called, {named[0]: c for named, c in configs.items()}),
    )


def _launching(called: TunedCall, configs: Mapping[str, Any]) -> Launching:
    """Return the function that builds the bench of some configs. The tuner's preparation before
    each launch is applied to the copies."""

    @contextmanager
    def launching(hashes: Sequence[str], failed: dict[str, str]) -> Iterator[KernelBench]:
        from backend.inductor.kernel_bench import (
            Arguments,
            ConfigLaunch,
            KernelBench,
            NotSampled,
        )

        kernel = called.kernel
        if getattr(kernel, "user_defined_post_hook", False):
            raise NotSampled("its tuner calls a post_hook of the program's own")
        how = {name: called.kwargs[name] for name in _HOW if name in called.kwargs}
        named = {name: value for name, value in called.kwargs.items() if name not in how}
        arguments = Arguments(called.args, named)
        places = {name: at for at, name in enumerate(_tensor_names(kernel, called.args, named))}
        stood = {places[name]: values for name, values in called.stood.items() if name in places}

        def launch_of(config: Any) -> ConfigLaunch:
            chosen = config.all_kwargs()

            def prepare(*args: Any, **named: Any) -> None:
                everything = {**dict(zip(kernel.arg_names, args, strict=False)), **named, **chosen}
                kernel.pre_hook(everything, reset_only=True)
                if config.pre_hook is not None:
                    config.pre_hook(everything)

            return ConfigLaunch(functools.partial(kernel.fn.run, **how, **chosen), prepare)

        launches = {hash: launch_of(configs[hash]) for hash in hashes}
        yield KernelBench(launches, arguments, given=stood)

    return launching


_HOW = ("grid", "warmup")
"""Arguments of a launch beside the kernel's own."""


def _tensor_names(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    import torch  # heavy: only a kernel that is measured needs it

    given = [*zip(kernel.arg_names, args, strict=False), *named.items()]
    return [name for name, value in given if isinstance(value, torch.Tensor)]


def _milliseconds(times: Any) -> float:
    """Return the median, which is the first of several numbers."""
    return float(times[0] if isinstance(times, list | tuple) else times)


# Measuring kernels in the program, right after each was tuned, on copies of its arguments, where
# `rocm-tui run --measure-kernels` requests it

UNMEASURED = "a Triton kernel is not measured"
Launching = Callable[[Sequence[str], dict[str, str]], AbstractContextManager["KernelBench"]]
"""Builds the bench of configs by hash, and notes why some cannot be launched."""


def measuring_wanted() -> bool:
    return environment.measure_seconds() > 0 and not environment.is_compile_worker()


def measure(
    recorder: Recorder,
    key: TuningKey,
    names: Mapping[str, str],
    times: Mapping[str, float],
    launching: Launching,
) -> None:
    """Measure the configs that may be the fastest by `times`, and write the result into the
    session. Never raises an Exception."""
    with quietly(UNMEASURED):
        # heavy: sampling and statistics
        import torch

        from backend.inductor.kernel_bench import (
            NoConfigRuns,
            NotSampled,
            measure_kernel,
            worth_measuring,
        )
        from backend.inductor.torch.state import mode_of_others, unwatched

        session, seconds = recorder.session, environment.measure_seconds()
        if session is None or len(times) < 2:
            return
        if mode := mode_of_others():
            say_once(f"{UNMEASURED} within {mode}")
            return
        failed: dict[str, str] = {}
        try:
            with unwatched(), torch.no_grad(), launching(worth_measuring(times), failed) as bench:
                measurement = measure_kernel(key, bench, names, session, seconds, failed)
        except (NotSampled, NoConfigRuns) as error:
            say_once(f"{UNMEASURED}: {error}")
        except torch.OutOfMemoryError:
            say_once(f"{UNMEASURED}: there is no memory for copies of its arguments")
        else:
            recorder.write(TuningMeasured(measurement))

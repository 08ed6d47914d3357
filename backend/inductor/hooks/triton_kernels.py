"""Tunings of kernels of `@triton.autotune`, as events: each is written once it is done, with the
times of all configs, whether Triton keeps them in a file or not. Where a file told the config,
nothing was timed, and the event says so.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from typing import Any

from backend.cache.configs import described
from backend.inductor.hooks import kernel_measuring, kernels
from backend.inductor.hooks.kernels import Called
from backend.inductor.hooks.recording import Recorder
from backend.model.choice import Choice
from backend.model.events import (
    BenchmarkStarted,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    TuningStarted,
)
from backend.model.inductor_kernel import TRITON, dtypes_of, inputs_of
from backend.model.problem import TuningKey

UNRECORDED = "a tuning of @triton.autotune is not recorded"
FAILED = "it cannot be compiled, or needs more than the device has"


def install(autotuner: Any, recorder: Recorder) -> None:
    """Record from now on. Raises AttributeError on an older Triton."""
    measures = functools.partial(_measure, recorder) if kernel_measuring.wanted() else None
    kernels.install(autotuner, functools.partial(_record, recorder), UNRECORDED, measures)


def _record(recorder: Recorder, kernel: Any, digest: str | None, timed: bool) -> None:
    times: Mapping[Any, Any] = kernel.configs_timings if timed or digest else {}
    if not times:
        return  # one config was left: there was nothing to choose
    named = {config: described(dict(vars(config), pre_hook=None)) for config in times}
    key = kernels.key_of(kernel)
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
            device="cuda",  # torch's word for each device that Triton is tuned on
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
    return inputs_of(kernel.base_fn.__name__[:150], kernels.key_of(kernel), digest or "")


def _measure(recorder: Recorder, called: Called) -> None:
    """The configs of a kernel that was tuned just now, with the arguments of that call."""
    kernel = called.kernel
    configs = {described(dict(vars(c), pre_hook=None)): c for c in kernel.configs_timings}
    times = {
        named[0]: ms
        for named, config in configs.items()
        if math.isfinite(ms := _milliseconds(kernel.configs_timings[config]))
    }
    kernel_measuring.measure(
        recorder,
        TuningKey(TRITON, _inputs(kernel, called.digest), ""),
        {hash_: name for hash_, name, _ in configs},
        times,
        kernel_measuring.launching_triton(called, {named[0]: c for named, c in configs.items()}),
    )


def _milliseconds(times: Any) -> float:
    """The median, which is the first of several."""
    return float(times[0] if isinstance(times, list | tuple) else times)

"""Triton kernels measured in the program, right after each was tuned, with the very arguments that
it was called with: where `rocm-tui run --measure-kernels` asks for it.

Launched are copies: nothing of the program's is written. What it costs is time, and memory for the
copies and for emptying the caches, which is free again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from backend.inductor.guard import quietly, say_once
from backend.inductor.hooks import environment
from backend.inductor.hooks.kernels import Called
from backend.inductor.hooks.recording import Recorder
from backend.inductor.torch import autotuner as torch_api
from backend.inductor.torch.autotuner import Autotuner, Config
from backend.model.events import TuningMeasured
from backend.model.inductor_kernel import PRECISION
from backend.model.problem import TuningKey

if TYPE_CHECKING:  # heavy, and few programs ask for it
    from backend.inductor.sampling.kernel_bench import KernelBench

UNMEASURED = "a Triton kernel is not measured"
Launching = Callable[[Sequence[str], dict[str, str]], AbstractContextManager["KernelBench"]]
"""Gives the bench of configs by their hashes, and tells which cannot be launched, and why."""


def wanted() -> bool:
    return environment.measure_seconds() > 0 and not environment.is_compile_worker()


def of_inductor(
    recorder: Recorder,
    autotuner: Autotuner,
    timed: Mapping[str, tuple[Config, float]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """A kernel that Inductor launches, called with these arguments, whose configs took so many
    milliseconds, by hash."""

    @contextmanager
    def launching(hashes: Sequence[str], failed: dict[str, str]) -> Iterator[KernelBench]:
        from backend.inductor.sampling.kernel_bench import Arguments, KernelBench, Launch

        def refused(hash: str, error: Exception) -> None:
            failed[hash] = f"{type(error).__name__}: {error}"

        arguments = Arguments(args, kwargs)  # before anything is compiled
        configs = {hash: timed[hash][0] for hash in hashes}
        with torch_api.launchers(autotuner, configs, refused) as made:
            prepare = torch_api.before_launch(autotuner)
            launches = {hash: Launch(launch, prepare) for hash, launch in made.items()}
            yield KernelBench(launches, arguments)

    kernel = torch_api.kernel_of(autotuner)
    if torch_api.generating():
        return  # a trial of how to fuse: no program launches this one
    names = {hash: torch_api.named(config)[1] for hash, (config, _) in timed.items()}
    times = {hash: ms for hash, (_, ms) in timed.items()}
    key = TuningKey(kernel.op, kernel.inputs, PRECISION)
    measure(recorder, key, names, times, launching)


def launching_triton(called: Called, configs: Mapping[str, Any]) -> Launching:
    """The same of a kernel of `@triton.autotune`: what its tuner does before each launch is done to
    the copies."""

    @contextmanager
    def launching(hashes: Sequence[str], failed: dict[str, str]) -> Iterator[KernelBench]:
        from backend.inductor.sampling.kernel_bench import (
            Arguments,
            KernelBench,
            Launch,
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

        def launch_of(config: Any) -> Launch:
            chosen = config.all_kwargs()

            def prepare(*args: Any, **named: Any) -> None:
                everything = {**dict(zip(kernel.arg_names, args, strict=False)), **named, **chosen}
                kernel.pre_hook(everything, reset_only=True)
                if config.pre_hook is not None:
                    config.pre_hook(everything)

            return Launch(partial(kernel.fn.run, **how, **chosen), prepare)

        launches = {hash: launch_of(configs[hash]) for hash in hashes}
        yield KernelBench(launches, arguments, given=stood)

    return launching


_HOW = ("grid", "warmup")
"""What says how it is launched, beside the kernel's own arguments."""


def _tensor_names(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    import torch  # heavy: only a kernel that is measured needs it

    given = [*zip(kernel.arg_names, args, strict=False), *named.items()]
    return [name for name, value in given if isinstance(value, torch.Tensor)]


def measure(
    recorder: Recorder,
    key: TuningKey,
    names: Mapping[str, str],
    times: Mapping[str, float],
    launching: Launching,
) -> None:
    """Measure the configs that may be the fastest by `times`, and write what comes of it into the
    session. Never raises what is an Exception."""
    with quietly(UNMEASURED):
        # heavy: what samples and judges
        import torch

        from backend.inductor.sampling.kernel_bench import NotSampled
        from backend.inductor.sampling.kernels import NoConfigRuns, measure_kernel, worth_measuring
        from backend.inductor.torch.modes import mode_of_others, unwatched

        session, seconds = recorder.session, environment.measure_seconds()
        if session is None or len(times) < 2:
            return
        if mode := mode_of_others():
            say_once(f"{UNMEASURED} within {mode}")
            return
        failed: dict[str, str] = {}
        try:
            with unwatched(), torch.no_grad(), launching(worth_measuring(times), failed) as bench:
                found = measure_kernel(key, bench, names, session, seconds, failed=failed)
        except (NotSampled, NoConfigRuns) as error:
            say_once(f"{UNMEASURED}: {error}")
        except torch.OutOfMemoryError:
            say_once(f"{UNMEASURED}: there is no memory for copies of its arguments")
        else:
            recorder.write(TuningMeasured(found))

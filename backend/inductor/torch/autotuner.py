"""The tuner of the Triton kernels that Inductor launches itself, `CachingAutotuner`.

`_precompile_worker` compiles the configs, often in a process that does nothing else; `precompile`
has that done and loads what came of it; the first `run` times the configs that are loaded, if there
are several (`autotune_to_one_config`), then, where that is asked for, configs that combine those of
a combo kernel's parts (`_combo_sequential_autotune`, from 2.12) and neighbours of the best one
(`coordinate_descent_tuning`). Each is timed by `bench`. A launcher has its `config`.

Read in torch 2.8 to 2.13 and 2.15 (`torch/_inductor/runtime/triton_heuristics.py`,
`coordinate_descent_tuner.py`).
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from backend.cache.configs import described
from backend.inductor.torch.versions import AUTOTUNER
from backend.model.inductor_kernel import (
    MAX_SOURCE,
    InductorKernel,
    config_of,
    kernel_of_parts,
    parse,
)

Autotuner = Any
Config = Any
Launcher = Any
Compare = Callable[[Config, Config], None]
"""Hears of a config that coordinate descent tries, and of the best one so far."""
Decide = Callable[[Config, float], None]
"""Hears of its milliseconds, which the same process may have known from before."""
Fail = Callable[[Config, BaseException], None]

COMPILE, LOAD, SCALE = "_precompile_worker", "precompile", "_dynamic_scale_rblock"
TUNE, COMBINE, DESCEND = (
    "autotune_to_one_config",
    "_combo_sequential_autotune",
    "coordinate_descent_tuning",
)
BENCH, RUN = "bench", "run"

_kernels: weakref.WeakKeyDictionary[Autotuner, InductorKernel] = weakref.WeakKeyDictionary()
_refusals: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Why what was compiled could not be loaded."""


def _module() -> Any:
    return sys.modules[AUTOTUNER]


def tuner() -> type:
    """The class."""
    kind: type = _module().CachingAutotuner
    return kind


def watch_loading(describe: Callable[[BaseException], str]) -> None:
    """Keep why a config that was compiled cannot be loaded: stock tells that of none but all."""
    module = _module()
    for owner in (module.TritonCompileResult, module.StaticTritonCompileResult):
        _watch_result(owner, describe)


def _watch_result(owner: Any, describe: Callable[[BaseException], str]) -> None:
    stock = owner.make_launcher

    def make_launcher(self: Any) -> Any:
        try:
            return stock(self)
        except Exception as error:
            with suppress(Exception):
                _refusals[self] = describe(error)
            raise

    owner.make_launcher = make_launcher


# What a kernel is


def kernel_of(autotuner: Autotuner) -> InductorKernel:
    """What stands in its file below the cache dir; where there is none, what it has of it."""
    known = _kernels.get(autotuner)
    if known is None:
        known = _kernels[autotuner] = _read(autotuner) or _parts(autotuner)
    return known


def source_of(autotuner: Autotuner) -> str:
    """The file with its text; empty where it has none."""
    return str(autotuner.filename or "")


def _read(autotuner: Autotuner) -> InductorKernel | None:
    try:
        with Path(source_of(autotuner)).open() as stream:
            kernel = parse(stream.read(MAX_SOURCE))
    except (OSError, ValueError):
        return None
    return kernel if kernel and kernel.name == autotuner.fn.__name__ else None


def _parts(autotuner: Autotuner) -> InductorKernel:
    device = autotuner.device_props
    names = ("type", "cc", "multi_processor_count")
    return kernel_of_parts(
        name=autotuner.fn.__name__,
        heuristic=autotuner.heuristic_type.name.lower(),
        function=str(autotuner.fn.src),
        size_hints=dict(autotuner.size_hints or {}),
        signature=[str(kind) for kind in autotuner.triton_meta["signature"].values()],
        device={name: getattr(device, name, "") for name in names},
    )


# Its configs


def named(config: Config) -> tuple[str, str, str]:
    """Hash, name and text."""
    return described(config_of(config.kwargs, config.num_warps, config.num_stages))


def members(config: Config) -> dict[str, Any]:
    """All that can be changed of it."""
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}


def config_from(texts: Mapping[str, str], hash: str) -> Config | None:
    """The config that is called `hash`, made of its members as `described` writes them; None where
    they do not tell it."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    warps, stages = values.pop("num_warps", None), values.pop("num_stages", None)
    if not isinstance(warps, int) or not isinstance(stages, int):
        return None
    config = _module().Config(values, num_warps=warps, num_stages=stages)
    return config if named(config)[0] == hash else None


def loaded(autotuner: Autotuner) -> list[Config]:
    """Those that can be launched."""
    return [launcher.config for launcher in autotuner.launchers]


def not_loaded(autotuner: Autotuner) -> Iterator[tuple[Config, str]]:
    """Those that were compiled and cannot be loaded, and why."""
    known = {named(config)[0] for config in loaded(autotuner)}
    for result in autotuner.compile_results:
        if named(result.config)[0] not in known:
            yield result.config, _refusals.get(result, "it could not be loaded")


def why_infinite(autotuner: Autotuner, launcher: Launcher) -> str:
    """Why a config has no time."""
    spills = getattr(launcher, "n_spills", None)
    if spills and not autotuner.custom_kernel and spills > _spills_allowed(autotuner):
        return f"{spills} registers are spilled"
    return "the device refuses to launch it"


def _spills_allowed(autotuner: Autotuner) -> int:
    import torch  # loaded long ago, or nothing would be tuned

    usual = 32 if torch.version.hip else 16
    return int(autotuner.inductor_meta.get("spill_threshold", usual))


def compile_seconds(autotuner: Autotuner) -> float | None:
    """How long compiling took, where that was within the first run."""
    return autotuner.precompile_time_taken_ns / 1e9 or None


def goes_on(autotuner: Autotuner, after: str) -> bool:
    """Whether the run tries more configs once the step `after` is done."""
    meta, config = autotuner.inductor_meta, autotuner.launchers[0].config
    combines = after == TUNE and bool(meta.get("combo_tuning_groups"))
    if combines and hasattr(autotuner, COMBINE) and not _was_found(config, "combo_autotune"):
        return True
    return bool(meta.get("coordinate_descent_tuning")) and not _was_found(config, "coordesc")


def _was_found(config: Config, by: str) -> bool:
    return bool(getattr(config, f"found_by_{by}", False))


@contextmanager
def descending(autotuner: Autotuner, tries: Compare, fails: Fail, takes: Decide) -> Iterator[None]:
    """Within it, each config that coordinate descent tries is told before it is timed, and after
    that its time, or why it cannot be compiled or launched."""
    tuner = autotuner.coordesc_tuner
    stock = tuner.compare_config

    def compare_config(func: Any, candidate: Config, best: Config, *rest: Any) -> Any:
        def timed(config: Config) -> Any:
            try:
                return func(config)
            except Exception as error:
                fails(config, error)
                raise

        tries(candidate, best)
        result = stock(timed, candidate, best, *rest)
        takes(candidate, float(result[1]))
        return result

    tuner.compare_config = compare_config
    try:
        yield
    finally:
        del tuner.compare_config


# A pin


def is_deterministic(autotuner: Autotuner) -> bool:
    """Whether the program asked for choices that times have no part in."""
    return bool(autotuner.inductor_meta.get("deterministic", False))


def keep_only(
    autotuner: Autotuner, hash: str, texts: Mapping[str, str]
) -> Callable[[], None] | None:
    """Let the config that is called `hash` be the only one that is compiled, loaded and launched;
    what undoes that. None, and nothing is changed, where it is not offered and cannot be made.

    Raises what compiling raises, where another process compiled configs without this one.
    """
    configs, results = autotuner.configs, autotuner.compile_results
    compiled = [result for result in results if named(result.config)[0] == hash]
    offered = [config for config in configs or () if named(config)[0] == hash]
    config = compiled[0].config if compiled else (offered or [config_from(texts, hash)])[0]
    if config is None:
        return None
    # These end Inductor's own search: it takes the config for one that was found before.
    marks = ("found_by_coordesc", "found_by_combo_autotune")
    for mark in marks:
        setattr(config, mark, True)
    if results and not compiled:
        _reload(autotuner)
        compiled = [autotuner._precompile_config(config)]
    autotuner.compile_results = compiled
    if not results:
        autotuner.configs = [config]

    def undo() -> None:
        autotuner.configs, autotuner.compile_results = configs, results
        for mark in marks:
            with suppress(AttributeError):
                delattr(config, mark)

    return undo


def _reload(autotuner: Autotuner) -> None:
    """Its function, which one that came from another process is without."""
    if autotuner.fn.fn is None:
        autotuner.fn = autotuner._reload_kernel().fn


# Launching a config beside the others


@contextmanager
def launchers(
    autotuner: Autotuner, configs: Mapping[str, Config], refused: Callable[[str, Exception], None]
) -> Iterator[dict[str, Callable[..., Any]]]:
    """What launches each config with the arguments of a call, on the current stream: new ones,
    since those that lost are closed. `refused` hears of configs that cannot be compiled or loaded.
    """
    _reload(autotuner)
    interface = autotuner.get_device_interface()
    stream = interface.get_raw_stream(interface.current_device())
    made: dict[str, Launcher] = {}
    try:
        for hash, config in configs.items():
            try:
                with autotuner.lock:
                    made[hash] = autotuner._precompile_config(config).make_launcher()
            except Exception as error:  # whatever the compiler raises is the end of this config
                refused(hash, error)
        yield {hash: partial(launcher, stream=stream) for hash, launcher in made.items()}
    finally:
        close = getattr(autotuner, "_close_static_launcher", None)
        if close is not None:
            for launcher in made.values():
                close(launcher)


def before_launch(autotuner: Autotuner) -> Callable[..., Any] | None:
    """What the tuner does to the arguments before each launch that it times."""
    return autotuner.reset_to_zero_args if autotuner.reset_to_zero_arg_names else None


def start_over(autotuner: Autotuner) -> None:
    """Forget what was compiled of a kernel that cannot be launched, and offer all its configs."""
    if not autotuner.configs:
        autotuner.configs = autotuner._reload_kernel().configs
    autotuner.compile_results, autotuner.launchers = [], []


def is_unusable(error: BaseException) -> bool:
    """Whether torch or Triton says by it that no config of a kernel can be compiled or loaded."""
    told = ("NoTritonConfigsError", "OutOfResources", "PTXASError", "IntelGPUError")
    return type(error).__name__ in told or "No valid triton configs" in str(error)


def generating() -> bool:
    """Whether Inductor writes a graph's code in this thread."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    return virtualized is not None and not isinstance(virtualized.V.graph, virtualized.NullHandler)


def launched(autotuner: Autotuner) -> Config | None:
    """The config that its runs launch, once that is settled."""
    launchers: Sequence[Launcher] = autotuner.launchers
    return launchers[0].config if len(launchers) == 1 else None

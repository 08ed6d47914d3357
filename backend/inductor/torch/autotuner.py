"""`CachingAutotuner`, the tuner of the Triton kernels that Inductor launches itself.

`_precompile_worker` compiles the configs, often in a separate process; `precompile` calls it and
loads the result; the first `run` times the loaded configs, if there are several
(`autotune_to_one_config`), then, if enabled, configs that combine those of a combo kernel's parts
(`_combo_sequential_autotune`, from 2.12) and neighbours of the best one
(`coordinate_descent_tuning`). Each is timed by `bench`. A launcher has its `config`.

Checked with torch 2.8 to 2.13 and 2.15 (`torch/_inductor/runtime/triton_heuristics.py`,
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
    comparable_config,
    kernel_of_parts,
    parse,
)

Autotuner = Any
Config = Any
Launcher = Any
Compare = Callable[[Config, Config], None]
"""Receives a config that coordinate descent tries, and the best one so far."""
Decide = Callable[[Config, float], None]
"""Receives its milliseconds, which may be cached in the same process."""
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
"""Reasons why compiled configs could not be loaded."""


def _module() -> Any:
    return sys.modules[AUTOTUNER]


def tuner() -> type:
    """Return the class."""
    kind: type = _module().CachingAutotuner
    return kind


def watch_loading(describe: Callable[[BaseException], str]) -> None:
    """Record why a compiled config cannot be loaded: stock reports that only if all fail."""
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


# Kernels


def kernel_of_tuner(autotuner: Autotuner) -> InductorKernel:
    """Return the kernel from its file in the cache dir, else from the tuner's own fields."""
    kernel = _kernels.get(autotuner)
    if kernel is None:
        kernel = _kernels[autotuner] = _read(autotuner) or _parts(autotuner)
    return kernel


def source_of_tuner(autotuner: Autotuner) -> str:
    """Return the file with its text; empty if it has none."""
    return str(autotuner.filename or "")


def _read(autotuner: Autotuner) -> InductorKernel | None:
    try:
        with Path(source_of_tuner(autotuner)).open() as stream:
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


# Configs


def named(config: Config) -> tuple[str, str, str]:
    """Return hash, name and text."""
    return described(comparable_config(config.kwargs, config.num_warps, config.num_stages))


def members(config: Config) -> dict[str, Any]:
    """Return all members that tuning can change."""
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}


def config_from(texts: Mapping[str, str], hash: str) -> Config | None:
    """Return the config with the hash `hash` from its members as `described` writes them; None if
    they do not determine it."""
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
    """Return the launchable configs."""
    return [launcher.config for launcher in autotuner.launchers]


def not_loaded(autotuner: Autotuner) -> Iterator[tuple[Config, str]]:
    """Yield the configs that were compiled and cannot be loaded, with the reason."""
    hashes = {named(config)[0] for config in loaded(autotuner)}
    for result in autotuner.compile_results:
        if named(result.config)[0] not in hashes:
            yield result.config, _refusals.get(result, "it could not be loaded")


def why_infinite(autotuner: Autotuner, launcher: Launcher) -> str:
    """Return why a config has no time."""
    spills = getattr(launcher, "n_spills", None)
    if spills and not autotuner.custom_kernel and spills > _spills_allowed(autotuner):
        return f"{spills} registers are spilled"
    return "the device refuses to launch it"


def _spills_allowed(autotuner: Autotuner) -> int:
    import torch  # already loaded whenever something is tuned

    usual = 32 if torch.version.hip else 16
    return int(autotuner.inductor_meta.get("spill_threshold", usual))


def compile_seconds(autotuner: Autotuner) -> float | None:
    """Return the duration of compiling, if that was within the first run."""
    return autotuner.precompile_time_taken_ns / 1e9 or None


def goes_on(autotuner: Autotuner, after: str) -> bool:
    """Return whether the run tries more configs after the step `after`."""
    meta, config = autotuner.inductor_meta, autotuner.launchers[0].config
    combines = after == TUNE and bool(meta.get("combo_tuning_groups"))
    if combines and hasattr(autotuner, COMBINE) and not _was_found(config, "combo_autotune"):
        return True
    return bool(meta.get("coordinate_descent_tuning")) and not _was_found(config, "coordesc")


def _was_found(config: Config, by: str) -> bool:
    return bool(getattr(config, f"found_by_{by}", False))


@contextmanager
def descending(autotuner: Autotuner, tries: Compare, fails: Fail, takes: Decide) -> Iterator[None]:
    """A context that reports each config that coordinate descent tries before it is timed, and
    afterwards its time, or why it cannot be compiled or launched."""
    tuner: Any = autotuner.coordesc_tuner
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
        vars(tuner).pop("compare_config", None)  # two threads may call a new kernel at once


# Pins


def is_deterministic(autotuner: Autotuner) -> bool:
    """Return whether the program requires choices that do not depend on times."""
    return bool(autotuner.inductor_meta.get("deterministic", False))


def keep_only(
    autotuner: Autotuner, hash: str, texts: Mapping[str, str]
) -> Callable[[Autotuner], None] | None:
    """Make the config with the hash `hash` the only one that is compiled, loaded and launched;
    return a function that undoes that, and does not keep the tuner alive. None, without any change,
    if it is not offered and cannot be created.

    Raises compile errors, if another process compiled configs without this one.
    """
    configs, results = autotuner.configs, autotuner.compile_results
    compiled = [result for result in results if named(result.config)[0] == hash]
    offered = [config for config in configs or () if named(config)[0] == hash]
    config = compiled[0].config if compiled else (offered or [config_from(texts, hash)])[0]
    if config is None:
        return None
    # These end Inductor's own search: it regards the config as found earlier.
    marks = ("found_by_coordesc", "found_by_combo_autotune")
    for mark in marks:
        setattr(config, mark, True)
    if results and not compiled:
        _reload(autotuner)
        compiled = [autotuner._precompile_config(config)]
    autotuner.compile_results = compiled
    if not results:
        autotuner.configs = [config]

    def undo(autotuner: Autotuner) -> None:
        autotuner.configs, autotuner.compile_results = configs, results
        for mark in marks:
            with suppress(AttributeError):
                delattr(config, mark)

    return undo


def _reload(autotuner: Autotuner) -> None:
    """Restore its function, which is missing in a tuner from another process."""
    if autotuner.fn.fn is None:
        autotuner.fn = autotuner._reload_kernel().fn


# Launching a config alone


@contextmanager
def launchers(
    autotuner: Autotuner, configs: Mapping[str, Config], refused: Callable[[str, Exception], None]
) -> Iterator[dict[str, Callable[..., Any]]]:
    """Yield functions that launch each config with a call's arguments, on the current stream: new
    launchers, since losing ones are closed. `refused` receives configs that cannot be compiled or
    loaded."""
    _reload(autotuner)
    interface = autotuner.get_device_interface()
    stream = interface.get_raw_stream(interface.current_device())
    by_hash: dict[str, Launcher] = {}
    try:
        for hash, config in configs.items():
            try:
                with autotuner.lock:
                    by_hash[hash] = autotuner._precompile_config(config).make_launcher()
            except Exception as error:  # a compiler error ends only this config
                refused(hash, error)
        yield {hash: partial(launcher, stream=stream) for hash, launcher in by_hash.items()}
    finally:
        close = getattr(autotuner, "_close_static_launcher", None)
        if close is not None:
            for launcher in by_hash.values():
                close(launcher)


def before_launch(autotuner: Autotuner) -> Callable[..., Any] | None:
    """Return the tuner's preparation of the arguments before each timed launch."""
    return autotuner.reset_to_zero_args if autotuner.reset_to_zero_arg_names else None


def start_over(autotuner: Autotuner) -> None:
    """Discard the compiled configs of a kernel that cannot be launched, and offer all again."""
    if not autotuner.configs:
        autotuner.configs = autotuner._reload_kernel().configs
    autotuner.compile_results, autotuner.launchers = [], []


def is_unusable(error: BaseException) -> bool:
    """Return whether an error means that none of a kernel's configs can be compiled or loaded."""
    names = ("NoTritonConfigsError", "OutOfResources", "PTXASError", "IntelGPUError")
    return type(error).__name__ in names or "No valid triton configs" in str(error)


def generating() -> bool:
    """Return whether Inductor writes a graph's code in this thread."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    return virtualized is not None and not isinstance(virtualized.V.graph, virtualized.NullHandler)


def launched(autotuner: Autotuner) -> Config | None:
    """Return the config that its runs launch, once that is decided."""
    launchers: Sequence[Launcher] = autotuner.launchers
    return launchers[0].config if len(launchers) == 1 else None

"""Which configs `@triton.autotune` takes in this process, and from where. Whoever asks hears of
each kernel after its first launch with a key: `hooks/triton_kernels.py` records it, and for
`rocm-tui verify -- CMD` it is one line in a file of a folder that the command made and reads.

Read in Triton 3.4, 3.6 and 3.9, `runtime/autotuner.py`: `run` launches the config that it finds in
`self.cache` under its key; where that has none, `check_disk_cache` asks the file that
`get_cache_manager` names, else the configs are timed, each by `_bench`. What was launched is what
is told. (3.9 has a listener, `knobs.autotuning.listener`, which is the program's own.)
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from backend.cache.configs import hash_of
from backend.inductor.guard import quietly

AUTOTUNER = "triton.runtime.autotuner"
CACHE = "triton.runtime.cache"
FOLDER = "ROCM_TUI_KERNELS"
"""The variable: the folder to write to."""
UNTOLD = "which configs Triton takes is not told"
Hear = Callable[[Any, str | None, bool], None]
"""Hears of a launch: the autotuner, the folder of Triton's cache that was asked, if any, and
whether configs were timed for it."""


@dataclass(frozen=True, slots=True)
class Called:
    """How a kernel was called that was tuned for it: the autotuner, the folder of Triton's cache,
    the arguments, and, by name, what stood in those that the tuner restores after each launch."""

    kernel: Any
    digest: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    stood: Mapping[str, Any]


After = Callable[[Called], None]


class _Call(threading.local):
    """The launch in this thread that is under way: the folder of Triton's cache that it asked."""

    digest: str | None = None
    timed = False
    asking = False
    stood: Mapping[str, Any] = MappingProxyType({})


def install(autotuner: Any, hear: Hear, untold: str = UNTOLD, after: After | None = None) -> None:
    """Tell of each first launch from now on, and of those that were tuned, `after` it too, if that
    is given. Raises AttributeError on an older Triton."""
    call = _Call()
    owner = autotuner.Autotuner
    cache: Any = importlib.import_module(CACHE)
    stock_run, stock_check, stock_bench = owner.run, owner.check_disk_cache, owner._bench
    stock_manager = cache.get_cache_manager

    @functools.wraps(stock_manager)
    def get_cache_manager(key: str, *rest: Any) -> Any:
        if call.asking:
            with quietly(untold):
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
            with quietly(untold):
                call.stood = _stood(self)
        call.asking, call.timed = False, True  # from here on kernels are compiled
        return stock_bench(self, *args, **kwargs)

    @functools.wraps(stock_run)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        known, before = _known(self), (call.digest, call.timed, call.stood)
        call.digest, call.timed, call.asking, call.stood = None, False, False, {}
        try:
            result = stock_run(self, *args, **kwargs)
            if _known(self) != known:
                with quietly(untold):
                    hear(self, call.digest, call.timed)
                    if after is not None and call.timed:
                        after(Called(self, call.digest, args, kwargs, call.stood))
            return result
        finally:
            call.digest, call.timed, call.stood = before

    cache.get_cache_manager = get_cache_manager
    if hasattr(autotuner, "get_cache_manager"):  # 3.4 looks it up each time
        autotuner.get_cache_manager = get_cache_manager
    owner.check_disk_cache = check_disk_cache
    owner._bench = bench
    owner.run = run


def _known(kernel: Any) -> int:
    """For how many keys it has a config; a program may have put something else there."""
    try:
        return len(kernel.cache)
    except Exception:
        return 0


def _stood(kernel: Any) -> dict[str, Any]:
    """Before the first config is timed."""
    names = [name for name in kernel.restore_value if hasattr(kernel.nargs.get(name), "clone")]
    return {name: kernel.nargs[name].detach().clone() for name in names}


def teller(folder: Path) -> Hear:
    """What writes to the folder."""
    return functools.partial(_tell, folder)


def key_of(kernel: Any) -> list[object]:
    """The values that the latest tuning of an autotuner is for, as its file has them."""
    plain = (str, int, float, bool, type(None))
    key = next(reversed(kernel.cache))
    return [part if isinstance(part, plain) else str(part) for part in key]


def _tell(folder: Path, kernel: Any, digest: str | None, timed: bool) -> None:
    """One line for the launch that was just done; several processes write to files of their own."""
    members = dict(vars(kernel.best_config), pre_hook=None)
    line = {
        "kernel": kernel.base_fn.__name__,
        "key": key_of(kernel),
        "digest": digest,
        "read": digest is not None and not timed,
        "config": hash_of(members),
    }
    with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")

"""Which configs `@triton.autotune` takes in this process, and from where: one line each, in a file
of a folder that `rocm-tui verify -- CMD` made and reads. Nothing else of the program is touched.

Read in Triton 3.4, 3.6 and 3.9, `runtime/autotuner.py`: `run` launches the config that it finds in
`self.cache` under its key; where that has none, `check_disk_cache` asks the file that
`get_cache_manager` names, else the configs are timed. So a line is written after the first launch
with each key: what was launched is what the line says.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.cache.configs import hash_of
from backend.inductor.guard import quietly

AUTOTUNER = "triton.runtime.autotuner"
CACHE = "triton.runtime.cache"
FOLDER = "ROCM_TUI_KERNELS"
"""The variable: the folder to write to."""
UNTOLD = "which configs Triton takes is not told"


class _Call(threading.local):
    """The launch in this thread that is under way: the folder of Triton's cache that it asked."""

    digest: str | None = None
    timed = False
    asking = False


def install(autotuner: Any, folder: Path) -> None:
    """Tell of each first launch from now on. Raises AttributeError on an older Triton."""
    call = _Call()
    owner = autotuner.Autotuner
    cache: Any = importlib.import_module(CACHE)
    stock_run, stock_check = owner.run, owner.check_disk_cache
    stock_manager = cache.get_cache_manager

    def get_cache_manager(key: str, *rest: Any) -> Any:
        if call.asking:
            with quietly(UNTOLD):
                call.digest = base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")
            call.asking = False
        return stock_manager(key, *rest)

    def check_disk_cache(self: Any, key: Any, configs: Any, bench: Callable[[], None]) -> Any:
        def timed() -> None:
            call.asking = False  # from here on kernels are compiled
            bench()
            call.timed = True

        call.asking = True
        return stock_check(self, key, configs, timed)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        known, before = len(self.cache), (call.digest, call.timed)
        call.digest, call.timed, call.asking = None, False, False
        try:
            result = stock_run(self, *args, **kwargs)
            if len(self.cache) != known:
                with quietly(UNTOLD):
                    _tell(folder, self, call)
            return result
        finally:
            call.digest, call.timed = before

    cache.get_cache_manager = get_cache_manager
    if hasattr(autotuner, "get_cache_manager"):  # 3.4 looks it up each time
        autotuner.get_cache_manager = get_cache_manager
    owner.check_disk_cache = check_disk_cache
    owner.run = run


def _tell(folder: Path, kernel: Any, call: _Call) -> None:
    """One line for the launch that was just done; several processes write to files of their own."""
    members = dict(vars(kernel.best_config), pre_hook=None)
    line = {
        "kernel": kernel.base_fn.__name__,
        "key": list(next(reversed(kernel.cache))),
        "digest": call.digest,
        "read": call.digest is not None and not call.timed,
        "config": hash_of(members),
    }
    with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")

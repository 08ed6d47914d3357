"""How busy the CPUs of this machine are, and whether that would make a measurement unclear."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.model.origin import device_kind
from backend.model.tuning import Tuning

BUSY_LOAD = "ROCM_TUI_BUSY_LOAD"
"""The environment variable with another threshold, in tasks a core; `inf` never warns."""
_PER_CORE = 1.0
# A CPU kernel has one thread a core and is as slow as the thread that waits longest. From one other
# task a core on, no core is free for it, so every call shares a core with somebody. Below that
# some calls run undisturbed, and interleaved rounds with their median find those.
_STILL_WAITING = 10.0
# The load average falls slowly: a minute after a build it is still high. The pressure of the last
# ten seconds says whether tasks do wait now. Of an idle machine it is below 1 %, of a 2-core one
# with a load of 3 it was 60 to 75 %.
_PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True)
class Load:
    """The load average of the last minute, the cores, and in how many per cent of the last ten
    seconds a task waited for one; None where the kernel does not report it."""

    average: float
    cores: int
    waiting: float | None = None

    def warning(self, per_core: float = _PER_CORE) -> str:
        """Return a clause that says how busy the machine is; empty while it is not."""
        if self.average < per_core * self.cores:
            return ""
        if self.waiting is not None and self.waiting < _STILL_WAITING:
            return ""
        load = f"{self.average:.0f}" if self.average >= 10 else f"{self.average:.1f}"
        cores = f"{self.cores} core{'s' * (self.cores != 1)}"
        return f"load {load} on {cores}: the result will probably be unclear"


def read_load(pressure: Path = _PRESSURE) -> Load:
    """Return the load now."""
    waiting = None
    with suppress(OSError, ValueError):
        if match := re.search(r"^some avg10=([\d.]+)", pressure.read_text()):
            waiting = float(match[1])
    return Load(psutil.getloadavg()[0], psutil.cpu_count() or 1, waiting)


def busy_warning(tunings: Iterable[Tuning]) -> str:
    """Return why measuring these now would probably be unclear; empty where nothing speaks against
    it. The GPU times its own kernels: a busy CPU only starts them later."""
    if not any(device_kind(tuning) == "cpu" for tuning in tunings):
        return ""
    per_core = _PER_CORE
    with suppress(ValueError):
        per_core = float(os.environ.get(BUSY_LOAD, per_core))
    return read_load().warning(per_core)

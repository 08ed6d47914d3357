"""A CPU: cpufreq, the temperature that its driver tells, and how often it throttled itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from backend.measure.machine.state import Risen, State, Usage, middle, number, text

SYSFS = Path("/sys")
PROC = Path("/proc")
_KIB = re.compile(r"(\w+):\s+(\d{1,12}) kB")
_DRIVERS = ("coretemp", "k10temp", "zenpower")
_MOST = 8
"""CPUs whose clock is read: that of one can cost a message to it."""


class Cpu:
    """The CPUs with these numbers, those that we may run on."""

    def __init__(self, cpus: Iterable[int], root: Path = SYSFS) -> None:
        ours = [root / f"devices/system/cpu/cpu{cpu}" for cpu in sorted(cpus)]
        self._clocks = _there(cpu / "cpufreq/scaling_cur_freq" for cpu in ours[:_MOST])
        self._counts = _there(
            cpu / "thermal_throttle" / f"{what}_throttle_count"
            for cpu in ours
            for what in ("core", "package")
        )
        self._temperature = _temperature(root)
        self._throttled = Risen()

    def __call__(self) -> State:
        clocks = (number(path, 1e-3) for path in self._clocks)
        count = int(sum(number(path) or 0 for path in self._counts))
        hot = self._throttled.of({"too hot": count})
        temperature = None if self._temperature is None else number(self._temperature, 1e-3)
        return State(middle(clocks), None, temperature, hot)


class Load:
    """How busy all CPUs were since it was asked last, and the machine's memory."""

    def __init__(self, root: Path = PROC) -> None:
        self._root = root
        self._before = self._times()

    def __call__(self) -> Usage:
        before, now = self._before, self._times()
        self._before = now
        spent = now[1] - before[1]
        busy = 100 * (now[0] - before[0]) / spent if spent > 0 else None
        memory = _memory(self._root / "meminfo")
        return Usage(busy, *memory)

    def _times(self) -> tuple[int, int]:
        """Ticks at work, and all: `proc_stat` of the manual."""
        words = text(self._root / "stat").partition("\n")[0].split()[1:9]
        if len(words) < 8 or not all(word.isdecimal() for word in words):
            return 0, 0
        ticks = [int(word) for word in words]
        idle = ticks[3] + ticks[4]
        return sum(ticks) - idle, sum(ticks)


def _memory(path: Path) -> tuple[float | None, float | None]:
    """Bytes that are not available to programs, and all."""
    told = dict(_KIB.findall(text(path, 400)))
    if "MemTotal" not in told or "MemAvailable" not in told:
        return None, None
    total = int(told["MemTotal"]) * 1024.0
    return total - int(told["MemAvailable"]) * 1024.0, total


def _there(paths: Iterable[Path]) -> list[Path]:
    """Those that exist: a virtual machine has none."""
    return [path for path in paths if path.exists()]


def _temperature(root: Path) -> Path | None:
    for chip in sorted((root / "class/hwmon").glob("hwmon*")):
        try:
            name = (chip / "name").read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if name in _DRIVERS:
            return chip / "temp1_input"
    return None

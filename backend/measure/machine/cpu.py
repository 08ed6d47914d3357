"""A CPU: cpufreq, the temperature that its driver tells, and how often it throttled itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backend.measure.machine.state import Risen, State, middle, number

SYSFS = Path("/sys")
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

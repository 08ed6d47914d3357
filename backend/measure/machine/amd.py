"""An AMD GPU, by what its Linux driver tells in sysfs, which is what AMD's own library reads.

`gpu_metrics` is a structure of the driver, in several revisions that its head names: their layouts
are those of `drivers/gpu/drm/amd/include/kgd_pp_interface.h` of Linux, the bits of the throttle
status those of `drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h` (independent of the chip) and
`.../swsmu/smu13/smu_v13_0_6_ppt.c` (of the MI300). A value with all bits set is not known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.measure.machine.state import Reading, Risen, State, Usage, number, text, why_unread

SYSFS = Path("/sys")
_VENDOR = "0x1002"

POWER, CURRENT, HOT, OTHER = "power cap", "current limit", "too hot", "the driver does not say why"


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a revision: its size, and the offsets of what we read. Of the throttling there is a status
    of bits, or counters that rise meanwhile: prochot, power, socket, regulators, memory."""

    size: int
    clock: int
    temperature: int
    power: int
    dependent: int | None = None
    """A status whose bits the chip defines."""
    independent: int | None = None
    """One whose bits are the same for all chips."""
    of_mi300: int | None = None
    """One whose bits are those of the MI300."""
    counters: int | None = None


LAYOUTS: Mapping[tuple[int, int], Layout] = {
    (1, 1): Layout(96, 54, 6, 22, dependent=68),
    (1, 2): Layout(104, 54, 6, 22, dependent=68),
    (1, 3): Layout(120, 54, 6, 22, dependent=68, independent=112),
    (1, 4): Layout(288, 240, 4, 10, of_mi300=40),
    (1, 5): Layout(360, 312, 4, 10, of_mi300=104),
    (1, 6): Layout(1664, 264, 4, 10, counters=36),
    (1, 7): Layout(2208, 296, 4, 10, counters=44),
    (1, 8): Layout(3360, 296, 4, 10, counters=44),
}
"""By format and content revision. The size tells a development version of one from the real one."""

_COUNTERS = (HOT, POWER, HOT, HOT, HOT)
_LARGEST = 1 << 16


class Amd:
    """The GPU at a PCI address (`0000:c1:00.0`); None takes the only one there is.

    Raises LookupError where there is none, or no telling which.
    """

    def __init__(self, address: str | None, root: Path = SYSFS) -> None:
        self._device = _device(address, root)
        self._chip = next(iter(sorted((self._device / "hwmon").glob("hwmon*"))), None)
        self._throttled = Risen()

    def __call__(self) -> State:
        metrics = self._metrics()
        chip = self._chip
        clock = power = temperature = None
        if chip is not None:
            clock = number(chip / "freq1_input", 1e-6)
            power = number(chip / "power1_average", 1e-6)
            power = number(chip / "power1_input", 1e-6) if power is None else power
            temperature = number(chip / "temp2_input", 1e-3)  # the hottest place, as gpu_metrics'
            temperature = number(chip / "temp1_input", 1e-3) if temperature is None else temperature
        if metrics is None:
            return State(clock, power, temperature)
        return State(
            metrics.clock if clock is None else clock,
            metrics.power if power is None else power,
            metrics.temperature if temperature is None else temperature,
            metrics.reasons(self._throttled),
        )

    @property
    def name(self) -> str:
        """What the board says it is; empty where it does not."""
        return text(self._device / "product_name")

    def usage(self) -> Usage:
        return Usage(
            number(self._device / "gpu_busy_percent"),
            number(self._device / "mem_info_vram_used"),
            number(self._device / "mem_info_vram_total"),
        )

    def reading(self) -> Reading:
        """All of it, and of what is not told, why."""
        if not self._device.is_dir():
            raise LookupError(f"{self._device.name} is gone")
        usage, state = self.usage(), self()
        chip = self._chip or self._device / "hwmon"
        asked = (
            ("use", usage.busy, self._device / "gpu_busy_percent"),
            ("memory", usage.memory_used, self._device / "mem_info_vram_used"),
            ("clock", state.clock_mhz, chip / "freq1_input"),
            ("power", state.power_w, chip / "power1_average"),
            ("temperature", state.temperature_c, chip / "temp1_input"),
        )
        missing = [f"{what}: {why_unread(path)}" for what, value, path in asked if value is None]
        return Reading(usage, state, tuple(missing))

    def _metrics(self) -> Metrics | None:
        try:
            with (self._device / "gpu_metrics").open("rb") as file:
                return parsed(file.read(_LARGEST))
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a `gpu_metrics` says that we know how to read."""

    clock: float | None
    power: float | None
    temperature: float | None
    status: tuple[str, ...] | None
    counters: Mapping[str, int]

    def reasons(self, risen: Risen) -> tuple[str, ...]:
        """Why it is throttled, or was since the counters were asked last."""
        return risen.of(dict(self.counters)) if self.status is None else self.status


def parsed(data: bytes) -> Metrics | None:
    """None where it is of no revision that is known, or not whole."""
    if len(data) < 4:
        return None
    size, *revision = struct.unpack_from("<HBB", data)
    layout = LAYOUTS.get((revision[0], revision[1]))
    if layout is None or size != layout.size or len(data) < size:
        return None
    counters: dict[str, int] = {}
    if layout.counters is not None:
        for at, reason in enumerate(_COUNTERS):
            count = _value(data, "<I", layout.counters + 4 * at)
            counters[reason] = counters.get(reason, 0) + (count or 0)
    return Metrics(
        _value(data, "<H", layout.clock),
        _value(data, "<H", layout.power),
        _value(data, "<H", layout.temperature),
        None if layout.counters is not None else _status(data, layout),
        counters,
    )


def _status(data: bytes, layout: Layout) -> tuple[str, ...]:
    """The first of its statuses that is known, in words."""
    for offset, kind, words in (
        (layout.independent, "<Q", _independent),
        (layout.of_mi300, "<I", _of_mi300),
        (layout.dependent, "<I", _dependent),
    ):
        status = None if offset is None else _value(data, kind, offset)
        if status is not None:
            return tuple(dict.fromkeys(_words(status, words)))
    return ()


def _words(status: int, word: Callable[[int], str]) -> list[str]:
    return [word(bit) for bit in range(64) if status >> bit & 1]


def _independent(bit: int) -> str:
    if bit < 16:
        return POWER
    return CURRENT if bit < 32 else HOT if bit < 56 else OTHER


def _of_mi300(bit: int) -> str:
    return POWER if bit == 1 else HOT


def _dependent(bit: int) -> str:
    return OTHER


def _value(data: bytes, kind: str, offset: int) -> int | None:
    (value,) = struct.unpack_from(kind, data, offset)
    unknown = (1 << 8 * struct.calcsize(kind)) - 1
    return None if value == unknown else int(value)


def addresses(root: Path = SYSFS) -> list[str]:
    """The PCI addresses of the AMD GPUs, in their order."""
    cards = (root / "class/drm").glob("card[0-9]*")
    found = {(card / "device").resolve().name for card in cards if _is_amd(card / "device")}
    return sorted(found)


def _device(address: str | None, root: Path) -> Path:
    if address is not None:
        device = root / "bus/pci/devices" / address
        if not device.is_dir():
            raise LookupError(f"no PCI device {address}")
        return device
    cards = (root / "class/drm").glob("card[0-9]*")
    devices = {(card / "device").resolve() for card in cards if _is_amd(card / "device")}
    if len(devices) != 1:
        raise LookupError(f"{len(devices)} AMD cards")
    return devices.pop()


def _is_amd(device: Path) -> bool:
    try:
        return (device / "vendor").read_text().strip() == _VENDOR
    except (OSError, UnicodeDecodeError):
        return False

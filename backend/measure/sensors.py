"""The clock, power, temperature, use and throttle reasons of a CPU, an AMD or an NVIDIA GPU.

An AMD GPU is read from sysfs, as AMD's own library does. `gpu_metrics` is a structure of the driver
in several revisions, named in its header: their layouts are from Linux,
`drivers/gpu/drm/amd/include/kgd_pp_interface.h`, the throttle status bits from
`drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h` (independent of the chip) and
`.../swsmu/smu13/smu_v13_0_6_ppt.c` (of the MI300). A value with all bits set is unknown.

An NVIDIA GPU is read with NVML, the library of its driver (all names are in the reference of
`nvidia-ml`), which is present wherever the driver is; a Python package for it may be missing.
"""

from __future__ import annotations

import ctypes
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

EVERY = 0.02
"""The minimum seconds between two readings: drivers do not update more often."""
_MOST_BYTES = 200
"""The part of a file of sysfs or proc that is used: a float can still hold as many digits."""
COST = 0.02
"""The maximum share of time for readings; slow readings become less frequent."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The state of a device; None is unknown. `throttled` are the reasons why the device is, or was
    since the last reading, slower than possible: `power cap`, `too hot`, ..."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a device: busy percent, bytes of memory. None is unknown."""

    busy: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A device at one moment. `unread` has a short reason for each unknown value."""

    usage: Usage
    state: DeviceState
    unread: tuple[str, ...] = ()


Sensor = Callable[[], DeviceState]
"""Reads the state of a device. If it raises anything, it is not called again."""


class SensorWatch:
    """Reads a sensor with a rate limit: between two readings the last one is returned."""

    def __init__(self, sensor: Sensor | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._sensor = sensor
        self._clock = clock
        self._due = 0.0
        self._last = DeviceState()

    def state(self) -> DeviceState:
        begin = self._clock()
        if self._sensor is None or begin < self._due:
            return self._last
        try:
            self._last = self._sensor()
        except Exception:  # any library or driver; the measurement must go on
            self._sensor, self._last = None, DeviceState()
        end = self._clock()
        self._due = end + max(EVERY, (end - begin) / COST)
        return self._last


class RisingCounters:
    """Counters that only rise while something slows the device down."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def of(self, counters: dict[str, int]) -> tuple[str, ...]:
        """Return the names of the counters that rose since the last call; none on the first."""
        risen = [name for name, count in counters.items() if count > self._before.get(name, count)]
        self._before = counters
        return tuple(risen)


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def sysfs_number(path: Path, scale: float = 1.0) -> float | None:
    """Return the number in a file of sysfs, times `scale`; None if it is not a number."""
    try:
        return int(read_sysfs(path)) * scale
    except ValueError:
        return None


def read_sysfs(path: Path) -> str:
    """Return the beginning of a file of sysfs or proc; empty if it cannot be read."""
    try:
        return _beginning(path)
    except OSError:
        return ""


def why_unread(path: Path) -> str:
    """Return why a file of sysfs has no number."""
    try:
        return f"{path.name} says {_beginning(path)[:20]!r}"
    except OSError as error:
        return f"{path.name}: {error.strerror}"


def _beginning(path: Path) -> str:
    return path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace").strip()


SYSFS = Path("/sys")
PROC = Path("/proc")
_KIB = re.compile(r"(\w+):\s+(\d{1,12}) kB")
_DRIVERS = ("coretemp", "k10temp", "zenpower")
_MOST = 8
"""The number of CPUs whose clock is read: reading one can cost an interrupt on it."""


class CpuSensor:
    """The CPUs with these numbers, which this process may use."""

    def __init__(self, cpus: Iterable[int], root: Path = SYSFS) -> None:
        ours = [root / f"devices/system/cpu/cpu{cpu}" for cpu in sorted(cpus)]
        self._clocks = _there(cpu / "cpufreq/scaling_cur_freq" for cpu in ours[:_MOST])
        self._counts = _there(
            cpu / "thermal_throttle" / f"{what}_throttle_count"
            for cpu in ours
            for what in ("core", "package")
        )
        self._temperature = _temperature(root)
        self._throttled = RisingCounters()

    def __call__(self) -> DeviceState:
        clocks = (sysfs_number(path, 1e-3) for path in self._clocks)
        count = int(sum(sysfs_number(path) or 0 for path in self._counts))
        hot = self._throttled.of({"too hot": count})
        temperature = None if self._temperature is None else sysfs_number(self._temperature, 1e-3)
        return DeviceState(middle(clocks), None, temperature, hot)


class CpuLoad:
    """The share of busy time of all CPUs since the last call, and the machine's memory."""

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
        """Return busy ticks and all ticks: `proc_stat` of the manual."""
        words = read_sysfs(self._root / "stat").partition("\n")[0].split()[1:9]
        if len(words) < 8 or not all(word.isdecimal() for word in words):
            return 0, 0
        ticks = [int(word) for word in words]
        idle = ticks[3] + ticks[4]
        return sum(ticks) - idle, sum(ticks)


def _memory(path: Path) -> tuple[float | None, float | None]:
    """Return the bytes that are not available to programs, and all bytes."""
    fields = dict(_KIB.findall(read_sysfs(path)))
    if "MemTotal" not in fields or "MemAvailable" not in fields:
        return None, None
    total = int(fields["MemTotal"]) * 1024.0
    return total - int(fields["MemAvailable"]) * 1024.0, total


def _there(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that exist: a virtual machine has none."""
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


NVML = "libnvidia-ml.so.1"
_SM = 1
"""The clock of the multiprocessors."""
_DIE = 0
"""The die, the only place with a temperature."""

_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""Two names of one function; drivers before 535 have only the second."""

NVML_REASONS: Mapping[int, str] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too hot",
    0x40: "too hot",
    0x80: "power brake",
}
"""Reasons for a lower clock that slow a kernel down from outside. The others are an idle device,
clocks that a person set, and a display."""


class _Rates(ctypes.Structure):
    """`nvmlUtilization_t`: percent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _MemoryV1(ctypes.Structure):
    """`nvmlMemory_t`, in bytes; memory reserved by the driver counts as used."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong))  # fmt: skip


class _MemoryV2(ctypes.Structure):
    """`nvmlMemory_v2_t`, in bytes; memory reserved by the driver is separate."""

    _fields_ = (("version", ctypes.c_uint), ("total", ctypes.c_ulonglong),
                ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong))  # fmt: skip


_V2 = 2 << 24
"""The structure version, without the structure's size."""


class NvidiaSensor:
    """The GPU at a PCI address (`0000:c1:00.0`), else the one with a uuid.

    Raises OSError, AttributeError, StopIteration and LookupError if the library, one of its
    functions or the GPU is missing.
    """

    def __init__(self, address: str | None, uuid: str | None, library: str = NVML) -> None:
        self._library: Any = ctypes.CDLL(library)
        if self._library.nvmlInit_v2():
            raise LookupError("NVML does not start")
        self._device = ctypes.c_void_p()
        names = (
            (self._library.nvmlDeviceGetHandleByPciBusId_v2, address),
            (self._library.nvmlDeviceGetHandleByUUID, uuid and f"GPU-{uuid}"),
        )
        if not any(name and self._is(find, name) for find, name in names):
            raise LookupError(f"NVML knows no GPU {address or uuid}")
        self._reasons: Any = next(filter(None, (getattr(self._library, f, None) for f in _REASONS)))

    def __call__(self) -> DeviceState:
        library = self._library
        reasons = self._ask(self._reasons, ctypes.c_ulonglong())
        power = self._ask(library.nvmlDeviceGetPowerUsage, ctypes.c_uint())
        return DeviceState(
            self._ask(library.nvmlDeviceGetClockInfo, ctypes.c_uint(), _SM),
            None if power is None else power / 1000,
            self._ask(library.nvmlDeviceGetTemperature, ctypes.c_uint(), _DIE),
            nvml_reasons(reasons or 0),
        )

    @property
    def name(self) -> str:
        """The driver's name for the GPU; empty if it has none."""
        text = ctypes.create_string_buffer(96)
        failed = self._library.nvmlDeviceGetName(self._device, text, ctypes.c_uint(len(text)))
        return "" if failed else text.value.decode("utf-8", "replace")

    def usage(self) -> Usage:
        rates = _Rates()
        idle = self._library.nvmlDeviceGetUtilizationRates(self._device, ctypes.byref(rates))
        memory = self._memory()
        used, total = (None, None) if memory is None else (float(memory.used), float(memory.total))
        return Usage(None if idle else float(rates.gpu), used, total)

    def _memory(self) -> _MemoryV2 | _MemoryV1 | None:
        """Return the memory as `nvidia-smi` counts it; drivers before 510 lack version 2."""
        second = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | _V2)
        ask = getattr(self._library, "nvmlDeviceGetMemoryInfo_v2", None)
        if ask is not None and not ask(self._device, ctypes.byref(second)):
            return second
        first = _MemoryV1()
        none = self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(first))
        return None if none else first

    def reading(self) -> SensorReading:
        """Return all values, and reasons for missing ones. Raises LookupError without the GPU."""
        usage, state = self.usage(), self()
        values = {
            "use": usage.busy,
            "memory": usage.memory_used,
            "clock": state.clock_mhz,
            "power": state.power_w,
            "temperature": state.temperature_c,
        }
        missing = [what for what, value in values.items() if value is None]
        if len(missing) == len(values):
            raise LookupError("NVML no longer reports the GPU")
        return SensorReading(
            usage, state, tuple(f"{what}: not reported by NVML" for what in missing)
        )

    def _is(self, find: Callable[..., int], name: str) -> bool:
        """Return whether the device was found."""
        return not find(ctypes.c_char_p(name.encode()), ctypes.byref(self._device))

    def _ask(self, question: Callable[..., int], answer: Any, *what: int) -> int | None:
        """Return the answer, or None if this GPU does not report it."""
        failed = question(self._device, *map(ctypes.c_int, what), ctypes.byref(answer))
        return None if failed else int(answer.value)


class _Pci(ctypes.Structure):
    """`nvmlPciInfo_t`."""

    _fields_ = (
        ("old", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("address", ctypes.c_char * 32),
    )


def nvidia_addresses(library: str = NVML) -> list[str]:
    """Return the PCI addresses of the NVIDIA GPUs, as Linux and torch write them (`0000:c1:00.0`),
    in the driver's order. Raises OSError and AttributeError if there is no such library."""
    nvml: Any = ctypes.CDLL(library)
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    addresses = []
    for at in range(min(count.value, 256)):
        device, pci = ctypes.c_void_p(), _Pci()
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(at), ctypes.byref(device))
        if not failed and not nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci)):
            domain, _, rest = pci.address.decode("ascii", "replace").lower().partition(":")
            addresses.append(f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}")
    return addresses


def nvml_reasons(bits: int) -> tuple[str, ...]:
    """Return the throttle reasons in words, each once."""
    return tuple(dict.fromkeys(word for bit, word in NVML_REASONS.items() if bits & bit))


_VENDOR = "0x1002"

POWER, CURRENT, HOT, OTHER = "power cap", "current limit", "too hot", "the driver does not say why"


@dataclass(frozen=True, slots=True)
class MetricsLayout:
    """The layout of a revision: its size, and the offsets of the fields that are read. Throttling
    is a status of bits, or counters that rise: prochot, power, socket, regulators, memory."""

    size: int
    clock: int
    temperature: int
    power: int
    dependent: int | None = None
    """The offset of a status whose bits the chip defines."""
    independent: int | None = None
    """The offset of a status whose bits are the same for all chips."""
    of_mi300: int | None = None
    """The offset of a status with the MI300's bits."""
    counters: int | None = None


LAYOUTS: Mapping[tuple[int, int], MetricsLayout] = {
    (1, 1): MetricsLayout(96, 54, 6, 22, dependent=68),
    (1, 2): MetricsLayout(104, 54, 6, 22, dependent=68),
    (1, 3): MetricsLayout(120, 54, 6, 22, dependent=68, independent=112),
    (1, 4): MetricsLayout(288, 240, 4, 10, of_mi300=40),
    (1, 5): MetricsLayout(360, 312, 4, 10, of_mi300=104),
    (1, 6): MetricsLayout(1664, 264, 4, 10, counters=36),
    (1, 7): MetricsLayout(2208, 296, 4, 10, counters=44),
    (1, 8): MetricsLayout(3360, 296, 4, 10, counters=44),
}
"""Layouts by format and content revision. The size distinguishes development versions."""

_COUNTERS = (HOT, POWER, HOT, HOT, HOT)
_LARGEST = 1 << 16


class AmdSensor:
    """The GPU at a PCI address (`0000:c1:00.0`); None means the only GPU. Raises LookupError if
    there is none, or the choice is ambiguous."""

    def __init__(self, address: str | None, root: Path = SYSFS) -> None:
        self._device = _amd_device(address, root)
        self._chip = next(iter(sorted((self._device / "hwmon").glob("hwmon*"))), None)
        self._throttled = RisingCounters()

    def __call__(self) -> DeviceState:
        metrics = self._metrics()
        chip = self._chip
        clock = power = temperature = None
        if chip is not None:
            clock = sysfs_number(chip / "freq1_input", 1e-6)
            power = sysfs_number(chip / "power1_average", 1e-6)
            power = sysfs_number(chip / "power1_input", 1e-6) if power is None else power
            temperature = sysfs_number(
                chip / "temp2_input", 1e-3
            )  # the hottest spot, as in gpu_metrics
            temperature = (
                sysfs_number(chip / "temp1_input", 1e-3) if temperature is None else temperature
            )
        if metrics is None:
            return DeviceState(clock, power, temperature)
        return DeviceState(
            metrics.clock if clock is None else clock,
            metrics.power if power is None else power,
            metrics.temperature if temperature is None else temperature,
            metrics.reasons(self._throttled),
        )

    @property
    def name(self) -> str:
        """The board's product name; empty if it has none."""
        return read_sysfs(self._device / "product_name")

    def usage(self) -> Usage:
        return Usage(
            sysfs_number(self._device / "gpu_busy_percent"),
            sysfs_number(self._device / "mem_info_vram_used"),
            sysfs_number(self._device / "mem_info_vram_total"),
        )

    def reading(self) -> SensorReading:
        """Return all values, with a reason for each missing one."""
        if not self._device.is_dir():
            raise LookupError(f"{self._device.name} is gone")
        usage, state = self.usage(), self()
        chip = self._chip or self._device / "hwmon"
        values = (
            ("use", usage.busy, self._device / "gpu_busy_percent"),
            ("memory", usage.memory_used, self._device / "mem_info_vram_used"),
            ("clock", state.clock_mhz, chip / "freq1_input"),
            ("power", state.power_w, chip / "power1_average"),
            ("temperature", state.temperature_c, chip / "temp1_input"),
        )
        missing = [f"{what}: {why_unread(path)}" for what, value, path in values if value is None]
        return SensorReading(usage, state, tuple(missing))

    def _metrics(self) -> Metrics | None:
        try:
            with (self._device / "gpu_metrics").open("rb") as file:
                return parse_metrics(file.read(_LARGEST))
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The fields of `gpu_metrics` that are used."""

    clock: float | None
    power: float | None
    temperature: float | None
    status: tuple[str, ...] | None
    counters: Mapping[str, int]

    def reasons(self, risen: RisingCounters) -> tuple[str, ...]:
        """Return why the GPU is throttled, or was since the counters were last read."""
        return risen.of(dict(self.counters)) if self.status is None else self.status


def parse_metrics(data: bytes) -> Metrics | None:
    """Parse `gpu_metrics`; None for an unknown revision or incomplete data."""
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


def _status(data: bytes, layout: MetricsLayout) -> tuple[str, ...]:
    """Return the reasons of the first status that is set."""
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


def amd_addresses(root: Path = SYSFS) -> list[str]:
    """Return the PCI addresses of the AMD GPUs, in their order."""
    cards = (root / "class/drm").glob("card[0-9]*")
    addresses = {(card / "device").resolve().name for card in cards if _is_amd(card / "device")}
    return sorted(addresses)


def _amd_device(address: str | None, root: Path) -> Path:
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

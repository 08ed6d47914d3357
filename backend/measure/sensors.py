"""The clock, power, temperature and use of a CPU, an AMD or an NVIDIA GPU, and why it is throttled.

An AMD GPU is read from sysfs, as AMD's own library does. `gpu_metrics` is a structure of the
driver, in several revisions that its head names: their layouts are those of
`drivers/gpu/drm/amd/include/kgd_pp_interface.h` of Linux, the bits of the throttle status those of
`drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h` (independent of the chip) and
`.../swsmu/smu13/smu_v13_0_6_ppt.c` (of the MI300). A value with all bits set is unknown.

An NVIDIA GPU is read by NVML, the library of its driver (`nvidia-ml`'s reference has all names),
which is there wherever the driver is; a Python package for it need not be.
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
"""Seconds between two readings, at least: drivers tell nothing new more often than that."""
COST = 0.02
"""Share of the time that readings may take; where one takes long, they are made less often."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """None is not known. `throttled` are the reasons why the device is, or since the last reading
    was, slower than it could be: `power cap`, `too hot`, ..."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a device is in use: busy percent, bytes of memory. None is not known."""

    busy: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A device at one moment. `unread` says of what is not known why, in a few words."""

    usage: Usage
    state: DeviceState
    unread: tuple[str, ...] = ()


Sensor = Callable[[], DeviceState]
"""Reads the state of a device. May raise anything: then it is not asked again."""


class SensorWatch:
    """Asks a sensor, but not too often: between two readings the last one holds."""

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
        except Exception:  # a library or a driver of any kind; what is measured matters more
            self._sensor, self._last = None, DeviceState()
        end = self._clock()
        self._due = end + max(EVERY, (end - begin) / COST)
        return self._last


class Risen:
    """Counters that only rise while something slows the device down: which did, since last time."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def of(self, counters: dict[str, int]) -> tuple[str, ...]:
        """The names of those that rose; none the first time."""
        risen = [name for name, count in counters.items() if count > self._before.get(name, count)]
        self._before = counters
        return tuple(risen)


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def number(path: Path, scale: float = 1.0) -> float | None:
    """What a file of sysfs says, times `scale`; None where it says no number."""
    try:
        return int(path.read_bytes()[:64]) * scale
    except (OSError, ValueError):
        return None


def text(path: Path, most: int = 200) -> str:
    """What a file of sysfs or proc says at its beginning; empty where it cannot be read."""
    try:
        return path.read_bytes()[:most].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def why_unread(path: Path) -> str:
    """Why a file of sysfs says no number."""
    try:
        said = path.read_bytes()[:64]
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return f"{path.name} says {said.decode('utf-8', 'replace').strip()[:20]!r}"


SYSFS = Path("/sys")
PROC = Path("/proc")
_KIB = re.compile(r"(\w+):\s+(\d{1,12}) kB")
_DRIVERS = ("coretemp", "k10temp", "zenpower")
_MOST = 8
"""CPUs whose clock is read: that of one can cost a message to it."""


class CpuSensor:
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

    def __call__(self) -> DeviceState:
        clocks = (number(path, 1e-3) for path in self._clocks)
        count = int(sum(number(path) or 0 for path in self._counts))
        hot = self._throttled.of({"too hot": count})
        temperature = None if self._temperature is None else number(self._temperature, 1e-3)
        return DeviceState(middle(clocks), None, temperature, hot)


class CpuLoad:
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


NVML = "libnvidia-ml.so.1"
_SM = 1
"""Of the clocks, that of the multiprocessors."""
_DIE = 0
"""The only place whose temperature it tells."""

_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""Two names of one function; drivers before 535 know the second one alone."""

NVML_REASONS: Mapping[int, str] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too hot",
    0x40: "too hot",
    0x80: "power brake",
}
"""Those of its reasons for a lower clock that slow a kernel down from outside. The others are an
idle device, clocks that somebody set, and a display."""


class _Rates(ctypes.Structure):
    """`nvmlUtilization_t`: percent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _MemoryV1(ctypes.Structure):
    """`nvmlMemory_t`, in bytes; what the driver keeps for itself counts as used."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong))  # fmt: skip


class _MemoryV2(ctypes.Structure):
    """`nvmlMemory_v2_t`, in bytes; what the driver keeps for itself stands by itself."""

    _fields_ = (("version", ctypes.c_uint), ("total", ctypes.c_ulonglong),
                ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong))  # fmt: skip


_V2 = 2 << 24
"""With the size of a structure it is the version that the structure has to name."""


class NvidiaSensor:
    """The GPU at a PCI address (`0000:c1:00.0`), else the one with a uuid.

    Raises OSError, AttributeError, StopIteration and LookupError where the library, one of its
    functions or the GPU is not there.
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
        """What its driver calls it; empty where it does not tell."""
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
        """As `nvidia-smi` counts it; drivers before 510 know the first version alone."""
        second = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | _V2)
        ask = getattr(self._library, "nvmlDeviceGetMemoryInfo_v2", None)
        if ask is not None and not ask(self._device, ctypes.byref(second)):
            return second
        first = _MemoryV1()
        none = self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(first))
        return None if none else first

    def reading(self) -> SensorReading:
        """All of it, and of what is not told, why. Raises LookupError where the GPU is gone."""
        usage, state = self.usage(), self()
        asked = {
            "use": usage.busy,
            "memory": usage.memory_used,
            "clock": state.clock_mhz,
            "power": state.power_w,
            "temperature": state.temperature_c,
        }
        missing = [what for what, value in asked.items() if value is None]
        if len(missing) == len(asked):
            raise LookupError("NVML tells nothing of it any more")
        return SensorReading(
            usage, state, tuple(f"{what}: NVML does not tell it" for what in missing)
        )

    def _is(self, find: Callable[..., int], name: str) -> bool:
        """Whether it was found."""
        return not find(ctypes.c_char_p(name.encode()), ctypes.byref(self._device))

    def _ask(self, question: Callable[..., int], answer: Any, *what: int) -> int | None:
        """None where this GPU does not tell."""
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
    """The PCI addresses of the NVIDIA GPUs, as Linux and torch write them (`0000:c1:00.0`), in the
    order in which their driver counts them.

    Raises OSError and AttributeError where there is no such library.
    """
    nvml: Any = ctypes.CDLL(library)
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    found = []
    for at in range(min(count.value, 256)):
        device, pci = ctypes.c_void_p(), _Pci()
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(at), ctypes.byref(device))
        if not failed and not nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci)):
            domain, _, rest = pci.address.decode("ascii", "replace").lower().partition(":")
            found.append(f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}")
    return found


def nvml_reasons(bits: int) -> tuple[str, ...]:
    """In words, each once."""
    return tuple(dict.fromkeys(word for bit, word in NVML_REASONS.items() if bits & bit))


_VENDOR = "0x1002"

POWER, CURRENT, HOT, OTHER = "power cap", "current limit", "too hot", "the driver does not say why"


@dataclass(frozen=True, slots=True)
class MetricsLayout:
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
"""By format and content revision. The size tells a development version of one from the real one."""

_COUNTERS = (HOT, POWER, HOT, HOT, HOT)
_LARGEST = 1 << 16


class AmdSensor:
    """The GPU at a PCI address (`0000:c1:00.0`); None takes the only one there is.

    Raises LookupError where there is none, or no telling which.
    """

    def __init__(self, address: str | None, root: Path = SYSFS) -> None:
        self._device = _amd_device(address, root)
        self._chip = next(iter(sorted((self._device / "hwmon").glob("hwmon*"))), None)
        self._throttled = Risen()

    def __call__(self) -> DeviceState:
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
            return DeviceState(clock, power, temperature)
        return DeviceState(
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

    def reading(self) -> SensorReading:
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
        return SensorReading(usage, state, tuple(missing))

    def _metrics(self) -> Metrics | None:
        try:
            with (self._device / "gpu_metrics").open("rb") as file:
                return parse_metrics(file.read(_LARGEST))
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


def parse_metrics(data: bytes) -> Metrics | None:
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


def _status(data: bytes, layout: MetricsLayout) -> tuple[str, ...]:
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


def amd_addresses(root: Path = SYSFS) -> list[str]:
    """The PCI addresses of the AMD GPUs, in their order."""
    cards = (root / "class/drm").glob("card[0-9]*")
    found = {(card / "device").resolve().name for card in cards if _is_amd(card / "device")}
    return sorted(found)


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

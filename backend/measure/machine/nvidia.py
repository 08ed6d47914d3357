"""An NVIDIA GPU, by NVML, the library of its driver (`nvidia-ml`'s reference names all of this).

It is called directly: it is there wherever the driver is, and a Python package for it need not be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from backend.measure.machine.state import Reading, State, Usage

LIBRARY = "libnvidia-ml.so.1"
_SM = 1
"""Of the clocks, that of the multiprocessors."""
_DIE = 0
"""The only place whose temperature it tells."""

_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""Two names of one function; drivers before 535 know the second one alone."""

REASONS: Mapping[int, str] = {
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


class Nvidia:
    """The GPU at a PCI address (`0000:c1:00.0`), else the one with a uuid.

    Raises OSError, AttributeError, StopIteration and LookupError where the library, one of its
    functions or the GPU is not there.
    """

    def __init__(self, address: str | None, uuid: str | None, library: str = LIBRARY) -> None:
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

    def __call__(self) -> State:
        library = self._library
        reasons = self._ask(self._reasons, ctypes.c_ulonglong())
        power = self._ask(library.nvmlDeviceGetPowerUsage, ctypes.c_uint())
        return State(
            self._ask(library.nvmlDeviceGetClockInfo, ctypes.c_uint(), _SM),
            None if power is None else power / 1000,
            self._ask(library.nvmlDeviceGetTemperature, ctypes.c_uint(), _DIE),
            reasons_of(reasons or 0),
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

    def reading(self) -> Reading:
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
        return Reading(usage, state, tuple(f"{what}: NVML does not tell it" for what in missing))

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


def addresses(library: str = LIBRARY) -> list[str]:
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


def reasons_of(bits: int) -> tuple[str, ...]:
    """In words, each once."""
    return tuple(dict.fromkeys(word for bit, word in REASONS.items() if bits & bit))

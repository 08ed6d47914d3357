"""An NVIDIA GPU, by NVML, the library of its driver (`nvidia-ml`'s reference names all of this).

It is called directly: it is there wherever the driver is, and a Python package for it need not be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from backend.measure.machine.state import State

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

    def _is(self, find: Callable[..., int], name: str) -> bool:
        """Whether it was found."""
        return not find(ctypes.c_char_p(name.encode()), ctypes.byref(self._device))

    def _ask(self, question: Callable[..., int], answer: Any, *what: int) -> int | None:
        """None where this GPU does not tell."""
        failed = question(self._device, *map(ctypes.c_int, what), ctypes.byref(answer))
        return None if failed else int(answer.value)


def reasons_of(bits: int) -> tuple[str, ...]:
    """In words, each once."""
    return tuple(dict.fromkeys(word for bit, word in REASONS.items() if bits & bit))

"""Load a library of kernels, once a path, and call its entries.

An entry is C: `int NAME(inputs..., output, sizes..., runtime args..., size_t* workspace_size,
uint8_t* workspace, hipStream_t stream)`. With `workspace_size` not null it only says how many
bytes of workspace the call needs. It returns 0 or an error number of HIP or CUDA.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.toolchain.errors import KernelError, LoadError

Entry = Callable[..., int]

_loaded: dict[Path, Library] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library. It stays loaded until the process ends."""

    path: Path
    _handle: ctypes.CDLL = field(repr=False)

    def entry(self, name: str, argtypes: Sequence[Any] | None = None) -> Entry:
        """The entry, its arguments checked against `argtypes` if given. Raises LoadError."""
        try:
            function = self._handle[name]
        except AttributeError:
            raise LoadError(f"{self.path} has no entry {name}") from None
        function.restype = ctypes.c_int
        if argtypes is not None:
            function.argtypes = list(argtypes)
        return function

    def error_text(self, code: int) -> str:
        """What the library says of an error number, in words."""
        try:
            describe = self._handle["rocm_tui_error_text"]
        except AttributeError:
            return "unknown"
        describe.restype = ctypes.c_char_p
        text = describe(ctypes.c_int(code))
        return text.decode(errors="replace") if text else "unknown"

    def check(self, entry: str, code: int) -> None:
        """Raises KernelError if `code`, which `entry` returned, is an error."""
        if code != 0:
            raise KernelError(entry, code, self.error_text(code))


def load(path: Path) -> Library:
    """The library at `path`; the same one each time. Raises LoadError."""
    path = path.resolve()
    with _lock:
        if path not in _loaded:
            try:
                _loaded[path] = Library(path, ctypes.CDLL(str(path)))
            except OSError as error:
                raise LoadError(f"cannot load {path}: {error}") from error
        return _loaded[path]


def argtypes(pointers: int, integers: int) -> list[Any]:
    """Of an entry with so many tensors and so many `int` sizes and runtime arguments."""
    tail = [ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_void_p]
    return [ctypes.c_void_p] * pointers + [ctypes.c_int] * integers + tail

"""Load a library of kernels, once a path, and call its entries.

An entry is C: `int NAME(inputs..., output, sizes..., runtime args..., size_t* workspace_size,
uint8_t* workspace, hipStream_t stream)`, sizes and runtime arguments in `int64_t`. With
`workspace_size` not null it only says how many bytes of workspace the call needs. It
returns 0 or an error number of HIP or CUDA.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.disk import trusted
from backend.errors import UnsafePath
from backend.toolchain.errors import KernelError, LoadError

Entry = Callable[..., int]

_loaded: dict[Path, Library] = {}
_lock = threading.Lock()
_numbers = itertools.count(1)


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


def load(path: Path, root: Path | None = None) -> Library:
    """The library at `path`; the same one each time. Raises LoadError.

    It is loaded only from where nobody else can write, `root` (default: its own folder) and below,
    and by the folder's descriptor: whatever is exchanged meanwhile, that file is loaded.
    """
    path = path.absolute()
    with _lock:
        if path not in _loaded:
            try:
                with trusted.opened_file(root or path.parent, path) as file:
                    _loaded[path] = Library(path, ctypes.CDLL(_name(file)))
            except UnsafePath as error:
                raise LoadError(str(error)) from error
            except OSError as error:
                raise LoadError(f"cannot load {path}: {error}") from error
        return _loaded[path]


def _name(descriptor: int) -> str:
    """A path of an open file that the C library was not given before: it takes two libraries of one
    path for the same, and descriptors are used again."""
    unique = "".join("./" if bit == "1" else "/" for bit in f"{next(_numbers):b}")
    return f"/proc/self/fd/{unique}{descriptor}"


def argtypes(pointers: int, integers: int) -> list[Any]:
    """Of an entry with so many tensors and so many sizes, strides and runtime arguments."""
    tail = [ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_void_p]
    return [ctypes.c_void_p] * pointers + [ctypes.c_int64] * integers + tail

"""What PyTorch asks in every process and is told the same: once, then it stands in `build/cxx`."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[3] / "build" / "cxx"


def watch(loader: Any) -> None:
    """Tell the module that `loader` loads what is known already."""
    load = loader.exec_module

    def exec_module(module: Any) -> None:
        load(module)
        if hasattr(module, "VecISA"):
            _know_units(module.VecISA)
        elif hasattr(getattr(module, "torch_key", None), "clear"):
            _know_source(module)

    loader.exec_module = exec_module


def _know_units(units: Any) -> None:
    """Whether g++ knows an extension of this CPU."""
    ask = units.check_build

    def check_build(isa: Any, code: str) -> bool:
        found = shutil.which("g++", path=os.environ["PATH"].partition(os.pathsep)[2])
        if found is None:
            return bool(ask(isa, code))
        said = _kept(lambda: b"yes" if ask(isa, code) else b"", found, isa.build_arch_flags(), code)
        return said == b"yes"

    units.check_build = check_build


def _know_source(module: Any) -> None:
    """The hash of PyTorch's source, which stands in the key of each compiled graph."""
    key = module.torch_key
    put = key.set

    def put_anew(value: bytes) -> None:  # a process that compiles for another is told it too
        key.clear()
        put(value)

    key.set = put_anew
    put_anew(_kept(key, module.__file__))


def _kept(ask: Callable[[], bytes], file: str, *more: str) -> bytes:
    """What `ask` says of that very file; an empty answer is not kept."""
    stat = Path(file).stat()
    parts = (file, stat.st_size, stat.st_mtime_ns, *more)
    kept = KEPT / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.answer"
    if kept.exists():
        return kept.read_bytes()
    if told := ask():
        KEPT.mkdir(parents=True, exist_ok=True)
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_bytes(told)
        new.replace(kept)
    return told

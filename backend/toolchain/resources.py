"""What a compiled kernel takes of its GPU: registers, LDS, scratch memory, spills."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.toolchain.code_cache import Compiled
from backend.toolchain.code_objects import code_objects, notes

_MOST_ITEMS = 4096
"""Of one list or object in a note: more kernels, or arguments of one, than a file has."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel. None: not known for this target.

    `vgprs` are all vector registers of a thread (on CDNA the accumulation registers, `agprs`, are
    among them; on NVIDIA the registers). `lds` is bytes a block, without what a launch asks for
    besides; `scratch` is bytes a thread. `vgpr_spills`, `sgpr_spills` count registers; for
    NVIDIA `vgpr_spills` counts 4-byte stores. `max_threads` is the launch bound.
    """

    kernel: str
    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    lds: int | None = None
    scratch: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    max_threads: int | None = None
    wave: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Resources that cannot be told, and why, in one line."""

    reason: str


def resources(compiled: Compiled) -> tuple[Resources, ...] | Unknown:
    """One for each kernel in what `compile` made, in the order of the file."""
    if compiled.target.kind == "cuda":
        return from_ptxas(compiled.log) or Unknown("the compiler's log names no kernel")
    if compiled.target.kind == "cpu":
        return Unknown("a CPU has no such resources")
    return from_file(compiled.path)


def from_file(path: Path) -> tuple[Resources, ...] | Unknown:
    """Of each AMD kernel in a code object or a library. Raises OSError if it cannot be read."""
    found: list[Resources] = []
    try:
        for code_object in code_objects(path.read_bytes()):
            found += [_from_metadata(kernel) for kernel in metadata(code_object)]
    except ImportError as error:
        return Unknown(f"{error.name} is not installed: pip install msgpack")
    except ValueError as error:
        return Unknown(f"{path}: {error}")
    return tuple(found) or Unknown(f"{path} holds no kernel for an AMD GPU")


def metadata(code_object: bytes) -> list[dict[str, Any]]:
    """`amdhsa.kernels` of the `AMDGPU` note, keys as they stand there (`.vgpr_count`).

    The note is msgpack: LLVM's "User Guide for AMDGPU Backend", code object metadata V3 and later.
    Raises ImportError without msgpack, ValueError for a damaged file.
    """
    msgpack: Any = importlib.import_module("msgpack")
    found: list[dict[str, Any]] = []
    try:
        for note in notes(code_object, b"AMDGPU"):
            # A count is believed before its content is seen: few bytes could ask for gigabytes.
            unpacked = msgpack.unpackb(note, max_array_len=_MOST_ITEMS, max_map_len=_MOST_ITEMS)
            found += unpacked["amdhsa.kernels"]
    except (msgpack.UnpackException, ValueError, KeyError, TypeError) as error:
        raise ValueError("not a whole code object") from error
    if not all(isinstance(kernel, dict) for kernel in found):
        raise ValueError("not a whole code object")
    return found


def _from_metadata(kernel: dict[str, Any]) -> Resources:
    return Resources(
        kernel=str(kernel.get(".name", "?")),
        vgprs=_whole(kernel, ".vgpr_count"),
        agprs=_whole(kernel, ".agpr_count"),
        sgprs=_whole(kernel, ".sgpr_count"),
        lds=_whole(kernel, ".group_segment_fixed_size"),
        scratch=_whole(kernel, ".private_segment_fixed_size"),
        vgpr_spills=_whole(kernel, ".vgpr_spill_count"),
        sgpr_spills=_whole(kernel, ".sgpr_spill_count"),
        max_threads=_whole(kernel, ".max_flat_workgroup_size"),
        wave=_whole(kernel, ".wavefront_size"),
    )


def _whole(kernel: Mapping[str, Any], name: str) -> int | None:
    """A count or a size; a damaged file may hold anything in its place."""
    value = kernel.get(name)
    return value if type(value) is int and 0 <= value < 1 << 32 else None


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"Used (\d{1,9}) registers")
_SMEM = re.compile(r"\b(\d{1,9}) bytes smem")


def from_ptxas(log: str) -> tuple[Resources, ...]:
    """Of each kernel that `ptxas -v` tells of."""
    found: list[Resources] = []
    parts = _ENTRY.split(log)[1:]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        frame, used, smem = _FRAME.search(part), _USED.search(part), _SMEM.search(part)
        found.append(
            Resources(
                kernel=name,
                vgprs=int(used[1]) if used else None,
                lds=int(smem[1]) if smem else 0,
                scratch=int(frame[1]) if frame else None,
                vgpr_spills=int(frame[2]) // 4 if frame else None,
                wave=32,
            )
        )
    return tuple(found)

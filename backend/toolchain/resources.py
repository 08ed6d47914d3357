"""The GPU resources of a compiled kernel: registers, LDS, scratch memory, spills; how many of its
waves a SIMD can hold at once, and what limits that.

AMD's kernels have them in the notes of their code object, which is an ELF file; a library holds
several in bundles (Clang's offload bundle format: magic, count, then offset, size and triple of
each). Parsed here without a library, because files may be damaged and notes need little of ELF.
"""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backend.toolchain.code_cache import Compiled
from backend.toolchain.target import GPU_ARCHES, ComputeUnit, Target

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_ELF = b"\x7fELF"
_EM_AMDGPU = 224
_MOST_ENTRIES = 4096
"""The maximum number of entries examined in all bundles of a file."""
_MOST_HEADERS = 256
_HEADER = 56
"""Bytes of a program header in a 64-bit ELF file."""
_PT_NOTE = 4


def code_objects(content: bytes) -> Iterator[bytes]:
    """Yield the code objects in a file: itself, or those in its bundles. Damaged bundles give none.
    At most as many bytes as the file has: overlapping bundles are damaged."""
    if content[:4] == _ELF and content[18:20] == _EM_AMDGPU.to_bytes(2, "little"):
        yield content
        return
    left, entries = len(content), _MOST_ENTRIES
    at = content.find(_BUNDLE)
    while at >= 0 and entries > 0:
        for code_object in _bundled(content, at, entries):
            entries -= 1
            left -= len(code_object)
            if left < 0:
                return
            if code_object:
                yield code_object
        at = content.find(_BUNDLE, at + len(_BUNDLE))


def _bundled(content: bytes, start: int, most: int) -> Iterator[bytes]:
    """Yield each entry of a bundle; empty if it is not a code object of an AMD GPU."""
    at = start + len(_BUNDLE)
    try:
        (count,) = struct.unpack_from("<Q", content, at)
        at += 8
        for _ in range(min(count, most)):
            offset, size, length = struct.unpack_from("<QQQ", content, at)
            triple = content[at + 24 : at + 24 + length]
            at += 24 + length
            begin = start + offset
            fits = triple.startswith(b"hip") and content[begin : begin + 4] == _ELF
            yield content[begin : begin + size] if fits else b""
    except (struct.error, OverflowError):
        return


def notes(elf: bytes, owner: bytes) -> Iterator[bytes]:
    """Yield the notes of `owner`, from the program headers of a 64-bit little-endian ELF file.
    Raises ValueError if the file ends too early, or its headers are not a linker's."""
    try:
        (headers,) = struct.unpack_from("<Q", elf, 32)
        size, count = struct.unpack_from("<HH", elf, 54)
        if count and (size != _HEADER or count > _MOST_HEADERS):
            raise ValueError("its program headers are none of a code object")
        left = len(elf)
        for i in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, headers + i * size)
            if kind != _PT_NOTE:
                continue
            segment = elf[offset : offset + length]
            left -= len(segment)
            if left < 0:
                raise ValueError("its segments overlap")
            yield from _notes_in(segment, owner)
    except (struct.error, OverflowError) as error:
        raise ValueError("the file ends too early") from error


def _notes_in(segment: bytes, owner: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(segment):
        name_size, size, _ = struct.unpack_from("<III", segment, at)
        name_at = at + 12
        content_at = name_at + _aligned(name_size)
        if segment[name_at : name_at + name_size].rstrip(b"\0") == owner:
            yield segment[content_at : content_at + size]
        at = content_at + _aligned(size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3


_MOST_ITEMS = 4096
"""The maximum of items in a list or object of a note: above any file's kernels or arguments."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one kernel. None: unknown for this target.

    `vgprs` are all vector registers of a thread (on CDNA including the accumulation registers,
    `agprs`; on NVIDIA the registers). `lds` is bytes per block, without dynamic memory of a launch;
    `scratch` is bytes per thread. `vgpr_spills`, `sgpr_spills` count registers; for NVIDIA
    `vgpr_spills` counts 4-byte stores. `max_threads` is the launch bound.
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
    """Resources are unknown, for a one-line reason."""

    reason: str


def resources(compiled: Compiled) -> tuple[Resources, ...] | Unknown:
    """Return the resources of each kernel in an artefact of `compile`, in the order of the file."""
    if compiled.target.kind == "cuda":
        return from_ptxas(compiled.log) or Unknown("the compiler's log names no kernel")
    if compiled.target.kind == "cpu":
        return Unknown("a CPU has no such resources")
    return from_file(compiled.path)


def from_file(path: Path) -> tuple[Resources, ...] | Unknown:
    """Return the resources of each AMD kernel in a file. Raises OSError if it cannot be read."""
    return from_content(path, path.read_bytes())


def from_content(path: Path, data: bytes) -> tuple[Resources, ...] | Unknown:
    """Return the resources of each AMD kernel in the content of a file."""
    kernels: list[Resources] = []
    try:
        for code_object in code_objects(data):
            kernels += [_from_metadata(kernel) for kernel in metadata(code_object)]
    except ImportError as error:
        return Unknown(f"{error.name} is not installed: pip install msgpack")
    except ValueError as error:
        return Unknown(f"{path}: {error}")
    return tuple(kernels) or Unknown(f"{path} holds no kernel for an AMD GPU")


def metadata(code_object: bytes) -> list[dict[str, Any]]:
    """Return `amdhsa.kernels` of the `AMDGPU` note with unchanged keys (`.vgpr_count`).

    The note is msgpack: LLVM's "User Guide for AMDGPU Backend", code object metadata V3 and later.
    Raises ImportError without msgpack, ValueError for a damaged file.
    """
    msgpack: Any = importlib.import_module("msgpack")
    kernels: list[dict[str, Any]] = []
    try:
        for note in notes(code_object, b"AMDGPU"):
            # msgpack allocates by the count alone, so a few bytes could request gigabytes.
            unpacked = msgpack.unpackb(note, max_array_len=_MOST_ITEMS, max_map_len=_MOST_ITEMS)
            kernels += unpacked["amdhsa.kernels"]
    except (msgpack.UnpackException, ValueError, KeyError, TypeError) as error:
        raise ValueError("not a whole code object") from error
    if not all(isinstance(kernel, dict) for kernel in kernels):
        raise ValueError("not a whole code object")
    return kernels


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
    """Return a count or a size; None for any other value, as in a damaged file."""
    value = kernel.get(name)
    return value if type(value) is int and 0 <= value < 1 << 32 else None


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"Used (\d{1,9}) registers")
_SMEM = re.compile(r"\b(\d{1,9}) bytes smem")


def from_ptxas(log: str) -> tuple[Resources, ...]:
    """Return the resources of each kernel in the output of `ptxas -v`."""
    kernels: list[Resources] = []
    parts = _ENTRY.split(log)[1:]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        frame, used, smem = _FRAME.search(part), _USED.search(part), _SMEM.search(part)
        kernels.append(
            Resources(
                kernel=name,
                vgprs=int(used[1]) if used else None,
                lds=int(smem[1]) if smem else 0,
                scratch=int(frame[1]) if frame else None,
                vgpr_spills=int(frame[2]) // 4 if frame else None,
                wave=32,
            )
        )
    return tuple(kernels)


Limit = Literal["waves", "registers", "scalar registers", "LDS", "block"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Waves of a kernel on a SIMD. `limited_by` "waves" means full occupancy. "block" means that
    blocks of this size leave wave slots empty."""

    waves_per_simd: int
    of: int
    limited_by: Limit


def occupancy(
    target: Target, resources: Resources, block_threads: int, dynamic_lds: int = 0
) -> Occupancy | None:
    """Return the occupancy of a kernel in blocks of `block_threads`; None if the architecture or a
    number is unknown. `dynamic_lds` is the launch's dynamic LDS in bytes."""
    arch = GPU_ARCHES.get(target.arch)
    if arch is None or resources.vgprs is None or resources.lds is None or block_threads < 1:
        return None
    unit = arch.unit
    block_waves = -(-block_threads // unit.wave)
    granules = max(1, -(-resources.vgprs // unit.register_granule))
    by_registers = min(unit.waves, unit.registers // (granules * unit.register_granule))
    # CDNA has 800 scalar registers per SIMD: more than 100 per wave leave room for seven.
    by_scalars = 7 if unit.scalars and (resources.sgprs or 0) > unit.scalars else unit.waves
    slots = unit.simds * min(by_registers, by_scalars, unit.waves)
    by_lds = _by_lds(unit, resources.lds + dynamic_lds)
    # A block of one wave needs no barrier; a unit has `blocks` barriers.
    by_barriers = unit.blocks if block_waves > 1 or unit.lds_reserved else slots
    blocks = min(slots // block_waves, by_lds, by_barriers)
    waves = min(-(-blocks * block_waves // unit.simds), unit.waves)
    limits: list[tuple[int, Limit]] = [
        (unit.simds * unit.waves // block_waves, "waves"),
        (by_lds, "LDS"),
        (unit.simds * by_registers // block_waves, "registers"),
        (unit.simds * by_scalars // block_waves, "scalar registers"),
        (by_barriers, "block"),
    ]
    limit = min(limits, key=lambda pair: pair[0])[1]
    if limit == "waves" and waves < unit.waves:
        limit = "block"
    return Occupancy(waves, unit.waves, limit)


def _by_lds(unit: ComputeUnit, lds: int) -> int:
    if lds == 0 and not unit.lds_reserved:
        return unit.simds * unit.waves
    allocated = -(-(lds + unit.lds_reserved) // unit.lds_granule) * unit.lds_granule
    return unit.lds // allocated

"""Does a bundle fit this box?

PyTorch and Triton name what they keep by all that it depends on. So what does not fit is not
wrong, it is never found; only C++ libraries are named by the flags of their compiler alone, which
say `-march=native`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from backend.sharing.bundle.manifest import Box, Manifest
from backend.sharing.bundle.parts import PARTS, part_of
from backend.sharing.plan import target


@dataclass(frozen=True, slots=True)
class Misfit:
    """A part of a bundle that is of no use here, and why."""

    part: str
    why: str


def misfits(manifest: Manifest, here: Box, blind: bool) -> Iterator[Misfit]:
    """The parts that cannot be used on this box; `blind`: its device is not the service's."""
    there = manifest.box
    present = {part.name for m in manifest.members if (part := part_of(m.name))}
    for name in PARTS:
        if name in present and (why := _why_not(name, there, here, blind)):
            yield Misfit(name, why)
    systems = {Path(m.name).name for m in manifest.members if m.name.startswith("cache/")}
    mine = here.machine.system_hash
    if not blind and systems and mine and mine not in systems:
        what = "they were measured on another system (device, Triton, HIP or CUDA)"
        yield Misfit("timings", f"{what}: no program here looks them up")


def _why_not(part: str, there: Box, here: Box, blind: bool) -> str:
    for difference in _REASONS.get(part, ()):
        if why := difference(there, here, blind):
            return why
    return ""


def _torch(there: Box, here: Box, blind: bool) -> str:
    versions = there.machine.torch, here.machine.torch
    if None not in versions and versions[0] != versions[1]:
        return f"torch {versions[0]} made them, {versions[1]} is here and finds none of them"
    if there.torch_key and here.torch_key and there.torch_key != here.torch_key:
        return f"another build of torch {versions[1]} made them; the one here finds none of them"
    return ""


def _triton(there: Box, here: Box, blind: bool) -> str:
    versions = there.machine.triton, here.machine.triton
    if None not in versions and versions[0] != versions[1]:
        return f"Triton {versions[0]} made them, {versions[1]} is here and finds none of them"
    return ""


def _runtime(there: Box, here: Box, blind: bool) -> str:
    for name in ("hip", "cuda"):
        versions = getattr(there.machine, name), getattr(here.machine, name)
        if versions[0] != versions[1]:
            told = [version or "none" for version in versions]
            return f"{name.upper()} {told[0]} there, {told[1]} here, which finds none of them"
    return ""


def _device(there: Box, here: Box, blind: bool) -> str:
    archs = there.machine.arch, here.machine.arch
    if blind or None in archs or target(archs[0] or "") == target(archs[1] or ""):
        return ""
    return f"made for {archs[0]}, this is {archs[1]}"


def _system(there: Box, here: Box, blind: bool) -> str:
    hashes = there.machine.system_hash, here.machine.system_hash
    if blind or None in hashes or hashes[0] == hashes[1]:
        return ""
    return "another system made them (device, Triton, HIP or CUDA): nothing here finds them"


def _cpu(there: Box, here: Box, blind: bool) -> str:
    if there.cpu and here.cpu and there.cpu != here.cpu:
        return f"libraries for {there.cpu}, this is {here.cpu}"
    lacking = sorted(set(there.flags) & NATIVE - set(here.flags))
    if blind or not lacking or not here.flags:
        return ""
    return f"C++ kernels were built for a CPU with {', '.join(lacking[:4])}, which this one lacks"


NATIVE = frozenset(
    "sse4_1 sse4_2 avx avx2 fma f16c bmi1 bmi2 abm movbe adx sha_ni vaes gfni vpclmulqdq clwb "
    "avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni "
    "avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx512_vp2intersect avx_vnni "
    "amx_tile amx_int8 amx_bf16 amx_fp16 serialize movdiri movdir64b waitpkg cldemote "
    "asimd asimdhp asimddp asimdfhm sve sve2 i8mm bf16 svei8mm svebf16 atomics fphp".split()
)
"""What a compiler may use that is told `-march=native`, as Linux names it."""

_REASONS = {
    "configs": (_torch, _device),
    "graphs": (_torch, _runtime, _triton, _device, _system),
    "code": (_torch, _cpu),
    "triton": (_triton, _device),
    "templates": (_runtime, _device, _cpu),
}


def unchecked(there: Box, here: Box, blind: bool) -> list[str]:
    """Facts that are not known on both sides, by name."""
    names = ["torch", *([] if blind else ["arch", "system_hash"])]
    pairs = {name: (getattr(there.machine, name), getattr(here.machine, name)) for name in names}
    pairs["torch build"] = there.torch_key, here.torch_key
    pairs["CPU"] = there.flags or None, here.flags or None
    return [name for name, pair in pairs.items() if None in pair]


def seen_from(box: Box, here: Box) -> Box:
    """`here` with the device of `box`: what an image is made for is not there while it is made."""
    names = ("arch", "compute_units", "device", "system_hash")
    told = {name: getattr(box.machine, name) for name in names}
    return replace(here, machine=replace(here.machine, **told))

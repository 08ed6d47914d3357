"""Which parts of a bundle are of use on another box, by what the two say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.sharing.bundle.fit import misfits, seen_from, unchecked
from backend.sharing.bundle.manifest import Box, Manifest
from backend.sharing.bundle.parts import PARTS, part_of
from tests.support.bundle_lab import FILES, manifest, member
from tests.support.pin_lab import GPU

THERE = Box(replace(GPU, system_hash="hash"), "ab" * 32, "cp311", "x86_64", ("avx2", "avx512f"))
NEEDS_TORCH = {"configs", "graphs", "code"}


def bundle_of(box: Box) -> Manifest:
    names = ["pins.json", "cache/hash", *FILES]
    return replace(manifest([member(name, b"") for name in names]), box=box)


def refused(here: Box, blind: bool = False) -> dict[str, str]:
    return {misfit.part: misfit.why for misfit in misfits(bundle_of(THERE), here, blind)}


def box(machine: dict[str, object], **own: object) -> Box:
    return replace(THERE, machine=replace(THERE.machine, **machine), **own)  # type: ignore[arg-type]


def test_each_part_is_asked() -> None:
    found = {part.name for m in bundle_of(THERE).members if (part := part_of(m.name))}
    assert found == set(PARTS) and refused(THERE) == {}


@pytest.mark.parametrize(
    ("here", "parts", "why"),
    [
        (box({"torch": "2.14.0+rocm7.1"}), NEEDS_TORCH, "torch 2.13.0"),
        (box({}, torch_key="00" * 32), NEEDS_TORCH, "another build"),
        (box({"triton": "3.7.0"}), {"graphs", "triton"}, "Triton 3.6.0 made"),
        (box({"hip": "6.4.1"}), {"graphs", "templates"}, "HIP"),
        (box({"arch": "gfx950"}), {"configs", "graphs", "triton", "templates"}, "gfx950"),
        (box({"system_hash": "other"}), {"graphs", "timings"}, "another system"),
        (box({}, flags=("avx2",)), {"code", "templates"}, "avx512f, which this one lacks"),
        (box({}, cpu="aarch64"), {"code", "templates"}, "libraries for x86_64"),
        (box({"arch": "gfx942:sramecc+:xnack+"}), set(), ""),
        (box({"compute_units": 80, "device": "AMD Instinct MI308X"}), set(), ""),
        (box({}, flags=("avx2", "avx512f", "amx_tile")), set(), ""),
    ],
)
def test_what_is_never_found_is_refused(here: Box, parts: set[str], why: str) -> None:
    found = refused(here)
    assert found.keys() == parts
    assert all(why in text or "system" in text for text in found.values()), found


def test_where_an_image_is_made_the_device_is_not_compared() -> None:
    builder = box({"arch": "AVX2", "device": "cpu", "system_hash": "x", "compute_units": None})
    builder = replace(builder, flags=("avx2",))
    assert {"timings", "graphs"} <= refused(builder).keys()
    assert refused(seen_from(THERE, builder), blind=True) == {}
    other = replace(builder, machine=replace(builder.machine, torch="2.12.0"))
    assert refused(seen_from(THERE, other), blind=True).keys() == NEEDS_TORCH


def test_what_is_not_known_is_said() -> None:
    assert unchecked(THERE, THERE, blind=False) == []
    nobody = replace(THERE, torch_key=None, flags=())
    assert unchecked(THERE, nobody, blind=False) == ["torch build", "CPU"]
    assert refused(nobody) == {}

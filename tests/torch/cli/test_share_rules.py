"""What a file of pins tells of a machine, and when another one may take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.errors import ShareInvalid
from backend.model.session import Session
from backend.sharing.plan import differences, minor, refused
from backend.sharing.share import (
    Machine,
    completed,
    machine_of,
    read_share,
)
from tests.support.pin_lab import GPU


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ShareInvalid, match=str(path)):
            read_share(path)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, []),
        ({"host": "gpu8"}, []),
        ({"torch": "2.13.1"}, []),
        ({"hip": "7.1.9"}, []),
        ({"arch": "gfx90a:sramecc+:xnack-"}, ["arch!"]),
        ({"arch": "gfx942:sramecc+:xnack+"}, ["arch"]),
        ({"arch": "sm_90", "hip": None, "cuda": "13.0"}, ["runtime!"]),
        ({"arch": "AVX512", "hip": None, "device": "cpu"}, ["arch!", "device", "hip"]),
        ({"device": "AMD Instinct MI300A", "compute_units": 228}, ["device", "compute_units"]),
        ({"torch": "2.12.0+rocm7.1"}, ["torch"]),
        ({"torch": "2.13.0a0+git1234567"}, ["torch"]),
        ({"triton": "3.6.1"}, ["triton"]),
        ({"hip": "7.2.0"}, ["hip"]),
        ({"system_hash": "beef"}, ["system_hash"]),
        ({"torch": None}, ["torch"]),
    ],
)
def test_the_rule_of_each_field(change: dict[str, Any], fields: list[str]) -> None:
    found = differences(GPU, replace(GPU, **change))
    assert [d.field + "!" * d.refuses for d in found] == fields
    assert refused(found) == any("!" in field for field in fields)
    for difference in found:
        assert difference.field in difference.sentence and difference.why in difference.sentence
        assert difference.known == (None not in (difference.there, difference.here))


def test_versions() -> None:
    assert minor("2.13.0+rocm7.1") == minor("2.13.1") == minor("2.13") == "2.13"
    assert minor("2.14.0.dev20260101") == "2.14.0.dev20260101"
    assert minor("7.1.25424-4179531dcd") == "7.1"


def test_facts_come_from_the_session_that_tuned_it_and_the_caches_header() -> None:
    def session(id_: str, torch: str, system: str, started: float) -> Session:
        return Session(
            id_, "gpu7", torch=torch, device="AMD Instinct MI300X", arch="gfx942:sramecc+:xnack-",
            compute_units=304, system_hash=system, started=started,
        )  # fmt: skip

    sessions = [
        session("a", "2.13.0+rocm7.1", "cafe", 1.0),
        session("b", "2.13.1", "cafe", 2.0),
        session("c", "2.12.0", "beef", 3.0),
    ]
    key = "3.6.0" + "0a" * 32 + "-" + "1b" * 32
    system = {
        "device": {"name": "gfx942:sramecc+:xnack-"},
        "version": {"triton": key, "hip": "7.1.25424"},
    }
    assert machine_of("cafe", system, sessions, "a") == GPU
    assert machine_of("cafe", system, sessions, None).torch == "2.13.1"
    assert machine_of("cafe", system, sessions, "c").torch == "2.13.1"
    alone = machine_of("cafe", system, [], None)
    assert (alone.arch, alone.triton, alone.hip) == (GPU.arch, "3.6.0", "7.1.25424")
    assert (alone.torch, alone.compute_units, alone.device, alone.host) == (None,) * 4
    cuda = {"device": {"name": "NVIDIA H200"}, "version": {"triton": key, "cuda": "13.0"}}
    found = machine_of("cafe", cuda, [], None)
    assert (found.arch, found.device, found.cuda) == (None, "NVIDIA H200", "13.0")
    hostile = {"device": [], "version": {"triton": "3\x1b" + "0a" * 32, "hip": 7}}
    assert machine_of("cafe", hostile, [], None) == Machine(system_hash="cafe")

    here = {"arch": "sm_90", "compute_units": 132, "torch": "2.13.0", "system_hash": "cafe"}
    full = completed(found, here)
    assert (full.arch, full.compute_units, full.torch) == ("sm_90", 132, None)
    assert completed(found, {**here, "system_hash": "beef"}) == found

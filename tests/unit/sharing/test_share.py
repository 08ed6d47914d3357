"""The file of exported pins: what is written is read again, and each field has its limits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.errors import ShareInvalid
from backend.model.choice import MOST_MS
from backend.model.session import Session
from backend.model.tuning import LATEST
from backend.sharing.share import (
    Machine,
    PinExport,
    SharedPin,
    completed,
    machine_here,
    machine_of,
    parse_share,
    read_share,
    share_text,
)
from tests.support.pin_lab import GPU, KEY, TIMES

PIN = SharedPin(
    KEY.op, KEY.inputs, KEY.precision, "mm-c1", "mm", GPU, {"BLOCK_M": "64"},
    {"highest": TIMES, "high": {"mm-c1": 3.0}}, "cuda", "ann", 7.5, "a note", ("digest",),
    {"0": "mm-c1", "3": "mm-c2"},
)  # fmt: skip


def test_what_is_written_is_read_again() -> None:
    elsewhere = replace(PIN, machine=Machine(), timings={}, variants={})
    share = PinExport((PIN, elsewhere, replace(PIN, op="bmm")), "ann", 9.0)
    text = share_text(share)
    assert parse_share(text.encode(), "file") == share
    assert len(json.loads(text)["machines"]) == 2
    assert math.inf in PIN.timings["highest"].values() and "Infinity" not in text


@pytest.mark.parametrize(
    ("field", "good", "bad", "why"),
    [
        ("note", "x" * 65_536, "x" * (65_537), "is too long"),
        ("note", "a\nb", "\ud800", "holds half a character"),
        ("op", "mm", "", "is not a name"),
        ("precision", "", "a\nb", "is not a name"),
        ("hash", "mm-c9", "", "is not a name"),
        ("when", LATEST, LATEST + 1, "is not a number from 0 to"),
        ("when", 0, -1, "is not a number from 0 to"),
        ("machine", 0, 1, "is none of the 1 in the file"),
        ("machine", 0, -1, "is not a whole number from 0 to 2147483647"),
        ("machine", 0, 1 << 31, "is not a whole number from 0 to 2147483647"),
        ("config", {"A": "x" * 1_000}, {"A": "x" * (1_001)}, "is too big"),
        (
            "config",
            {str(n): "" for n in range(100)},
            {str(n): "" for n in range(101)},
            "is too big",
        ),
        ("config", {"A B": ""}, {"A\n": ""}, "is not an object of named members"),
        ("timings", {"high": {"mm-c1": 0.5}}, {"high": {"mm-c1": 0.0}}, "has no time for mm-c1"),
        ("timings", {"high": {"mm-c1": None}}, {"high": {"mm-c1": "1"}}, "has no time for mm-c1"),
        ("timings", {"high": {"mm-c1": 7}}, {"high": {"mm-c1": True}}, "has no time for mm-c1"),
        ("timings", {"high": {}}, {"high": {"mm-c1": MOST_MS}}, "has no time for mm-c1"),
        ("timings", {"": {}}, {"high": {"mm-c1": 10**400}}, "has no time for mm-c1"),
        ("timings", {}, {"high": {"\x1b[31m": 1.0}}, "has no time for "),
        ("variants", {"9999": "mm-c1"}, {"10000": "mm-c1"}, "has no device '10000'"),
    ],
)
def test_the_limits_of_each_field(field: str, good: object, bad: object, why: str) -> None:
    document: dict[str, Any] = json.loads(share_text(PinExport((replace(PIN, variants={}),))))
    (row,) = document["pins"]
    parse_share(json.dumps({**document, "pins": [{**row, field: good}]}).encode(), "file")
    with pytest.raises(ShareInvalid) as caught:
        parse_share(json.dumps({**document, "pins": [{**row, field: bad}]}).encode(), "file")
    assert str(caught.value).startswith("file: ") and str(caught.value).isprintable()
    assert why in str(caught.value) and f"`{field}`" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "bad", "why"),
    [
        ("format", "other pins", "`rocm-tui export` writes such files"),
        ("version", 2, "update rocm-tui"),
        ("by", 7, "is not text"),
        ("when", -1, "is not a number from 0 to"),
        ("machines", [], "is none of the 0 in the file"),
        ("machines", [{"arch": ""}], "is not a name"),
        ("machines", [{"compute_units": -1}], "is not a whole number"),
    ],
)
def test_the_limits_of_the_file(field: str, bad: object, why: str) -> None:
    document = json.loads(share_text(PinExport((PIN,))))
    with pytest.raises(ShareInvalid, match=why):
        parse_share(json.dumps({**document, field: bad}).encode(), "file")


def test_an_exported_file_is_read(tmp_path: Path) -> None:
    path, share = tmp_path / "pins.json", PinExport((PIN,), "ann", 9.0)
    path.write_text(share_text(share))
    assert path.read_bytes().endswith(b"\n") and read_share(path) == share
    path.write_bytes(b"{torn")
    with pytest.raises(ShareInvalid, match=f"^{path}: "):
        read_share(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ShareInvalid, match=str(path)):
            read_share(path)


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


def test_the_machine_of_a_workers_answer() -> None:
    answer = {
        "arch": "gfx942", "device": "AMD Instinct MI300X", "torch": "2.13.0", "triton": "3.6.0",
        "hip": "7.1", "cuda": None, "system_hash": "cafe", "compute_units": 304,
    }  # fmt: skip
    assert machine_here(answer, "gpu7") == Machine(
        "gfx942", 304, "AMD Instinct MI300X", "2.13.0", "3.6.0", "7.1", None, "cafe", "gpu7"
    )
    odd = {"arch": "\x1b[31m", "device": "", "torch": 2.13, "compute_units": True}
    assert machine_here(odd) == Machine()

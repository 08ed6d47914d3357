"""Choices on several GPUs of one box, in the hooks: identities, and times for the other GPUs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from backend.cache.journal import Tuned
from backend.cache.variants import ChoiceVariants
from backend.inductor.hooks import lookup
from backend.inductor.torch import tuning as torch_api
from tests.support.device_modules import write_choice

pytestmark = pytest.mark.torch

ATEN = "mm-" + "c" * 52


class Offered:
    """A choice as far as its hash goes."""

    def __init__(self, hash_: str) -> None:
        self._hash = hash_

    def hash_key(self) -> str:
        return self._hash


def test_two_ranks_on_two_gpus_know_a_kernel_by_one_identity(tmp_path: Path) -> None:
    first, second = (
        [Offered(write_choice(tmp_path, gpu, BLOCK_M=rows)) for rows in (32, 64)] + [Offered(ATEN)]
        for gpu in (0, 3)
    )
    there = lookup.identities(second, tmp_path)
    assert list(there.values()) == [choice.hash_key() for choice in first]
    assert lookup.identities(first, tmp_path) == {name: name for name in there.values()}


def test_times_are_written_for_the_gpus_of_one_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_api, "devices_alike", lambda index: [0, 2] if index == 1 else [])
    fast, slow, own = (write_choice(tmp_path, 1, BLOCK_M=rows) for rows in (32, 64, 128))
    tuned = Tuned("mm", "inputs", "highest", {fast: 1.0, slow: math.inf, own: 3.0, ATEN: 2.0}, 5.0)
    variants = ChoiceVariants(tmp_path)
    known = {"mm": {"inputs": {"highest": {variants.on(own, 2): 2.5}}}}
    (written,) = lookup.for_all_devices([tuned], known, tmp_path)
    taken = {
        variants.on(name, gpu): ms
        for gpu in (0, 2)
        for name, ms in ((fast, 1.0), (slow, math.inf), (own, 3.0))
        if (name, gpu) != (own, 2)  # that GPU measured it itself
    }
    assert written.timings == {**tuned.timings, **taken}
    assert lookup.taken_over() == [lookup.TakenOver(1, (0, 2), taken)]
    assert lookup.taken_over() == []
    for nothing in ({}, {"mm": None}):  # the first tuning of the box; a cache that is damaged
        (written,) = lookup.for_all_devices([tuned], nothing, tmp_path)
        assert written.timings == {**tuned.timings, **taken, variants.on(own, 2): 3.0}
        lookup.taken_over()
    fresh = ChoiceVariants(tmp_path)  # the modules of the other GPUs are there too
    assert {fresh.device(name) for name in taken} == {0, 2}


def test_times_without_a_gpu_in_their_hashes_stay_as_they_are(tmp_path: Path) -> None:
    tuned = Tuned("mm", "inputs", "highest", {ATEN: 2.0, "Cpp-c1": 1.0}, 5.0)
    assert lookup.for_all_devices([tuned], {}, tmp_path) == [tuned]
    assert lookup.taken_over() == []


def test_without_a_gpu_no_device_is_alike() -> None:
    assert torch_api.devices_alike(0) == []

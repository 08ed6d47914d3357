"""Times of one device, written under the hashes of the others."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from backend.cache.variants import ChoiceVariants, device_folders, for_devices, write_modules
from backend.errors import UnsafePath
from tests.support.device_modules import write_choice

SIZES = (16, 32, 64)


def choices_on(root: Path, index: int | None) -> list[str]:
    return [write_choice(root, index, BLOCK_M=size) for size in SIZES]


def test_times_are_written_under_the_hashes_of_each_device(tmp_path: Path) -> None:
    here = choices_on(tmp_path / "here", 0)
    times = {**dict(zip(here, (0.1, math.inf, 0.3), strict=True)), "aten::mm": 0.2}
    taken = for_devices(times, ChoiceVariants(tmp_path / "here"), (1, 7))
    on_1, on_7 = (choices_on(tmp_path / "there", index) for index in (1, 7))
    assert taken == dict(zip([*on_1, *on_7], (0.1, math.inf, 0.3) * 2, strict=True))


def test_nothing_is_taken_over_by_the_measuring_device(tmp_path: Path) -> None:
    times = dict.fromkeys(choices_on(tmp_path, 2), 0.1)
    assert for_devices(times, ChoiceVariants(tmp_path), (2,)) == {}


def test_choices_for_any_device_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    missing = choices_on(tmp_path / "elsewhere", 0)
    times = dict.fromkeys([*choices_on(tmp_path, None), *missing], 0.1)
    assert for_devices(times, ChoiceVariants(tmp_path), (0, 1)) == {}


def test_a_time_that_another_device_measured_is_kept(tmp_path: Path) -> None:
    here, there = choices_on(tmp_path, 0), choices_on(tmp_path, 1)
    known = {there[0]: 0.5, there[1]: math.inf}
    taken = for_devices(dict.fromkeys(here, 0.1), ChoiceVariants(tmp_path), (1,), known)
    assert taken == {there[2]: 0.1}


def test_a_time_that_was_taken_over_before_is_replaced(tmp_path: Path) -> None:
    here, there = choices_on(tmp_path, 0), choices_on(tmp_path, 1)
    known = {here[0]: 0.4, there[0]: 0.4, here[1]: 0.6, there[1]: 0.7, here[2]: math.inf}
    known[there[2]] = math.inf
    taken = for_devices(dict.fromkeys(here, 0.1), ChoiceVariants(tmp_path), (1,), known)
    assert taken == {there[0]: 0.1, there[2]: 0.1}


def test_modules_are_those_that_inductor_writes_on_the_other_device(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    choices = choices_on(here, 0)
    expected = choices_on(there, 3)
    variants = ChoiceVariants(here)
    write_modules(variants, [*choices, "aten::mm"], (3,))
    assert [ChoiceVariants(here).device(choice) for choice in expected] == [3] * len(SIZES)
    files = {path.relative_to(there): path.read_bytes() for path in there.rglob("*.py")}
    assert all((here / path).read_bytes() == text for path, text in files.items())
    assert len(list(here.rglob("*.*"))) == 2 * len(SIZES)
    assert device_folders(here) == [3]


def test_without_modules_no_folder_is_made(tmp_path: Path) -> None:
    write_modules(ChoiceVariants(tmp_path), ["aten::mm", *choices_on(tmp_path, None)], (1,))
    assert device_folders(tmp_path) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (choice,) = choices_on(root, 0)[:1]
    (tmp_path / "elsewhere").mkdir()
    (root / "triton").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath):
        write_modules(ChoiceVariants(root), [choice], (1,))
    assert list((tmp_path / "elsewhere").iterdir()) == []

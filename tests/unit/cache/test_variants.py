"""The hashes of one choice on several devices, from modules below a cache dir."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.cache.code import code_hash
from backend.cache.variants import ChoiceVariants, device_folders, read_module
from tests.support.device_modules import compiled_on, write_choice


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_one_kernel_has_one_identity_on_all_devices(tmp_path: Path, kind: str) -> None:
    devices = (0, 1, 7, 63)
    hashes = [write_choice(tmp_path, index, kind=kind, BLOCK_M=64) for index in devices]
    variants = ChoiceVariants(tmp_path)
    assert len({*hashes}) == len(devices)
    assert {variants.identity(each) for each in hashes} == {hashes[0]}
    assert [variants.device(each) for each in hashes] == list(devices)
    for each in hashes:
        assert [variants.on(each, index) for index in devices] == hashes
        assert variants.is_known(each)


def test_the_hash_on_a_device_that_compiled_nothing_yet(tmp_path: Path) -> None:
    first = write_choice(tmp_path, 0, BLOCK_M=64)
    told = ChoiceVariants(tmp_path).on(first, 5)
    assert told == write_choice(tmp_path / "other", 5, BLOCK_M=64)


def test_compiled_on_one_rank_the_hash_is_that_of_all(tmp_path: Path) -> None:
    any_device = write_choice(tmp_path, None, BLOCK_M=64)
    variants = ChoiceVariants(tmp_path)
    assert variants.is_known(any_device)
    assert variants.device(any_device) is None
    assert variants.on(any_device, 3) == any_device


def test_another_config_or_kind_of_device_is_another_kernel(tmp_path: Path) -> None:
    base = write_choice(tmp_path, 1, BLOCK_M=64)
    others = [
        write_choice(tmp_path, 1, BLOCK_M=128),
        write_choice(tmp_path, 1, BLOCK_M=64, warps=8),
        write_choice(tmp_path, 1, BLOCK_M=64, stages=2),
        write_choice(tmp_path, 1, BLOCK_M=64, kind="hip"),
        write_choice(tmp_path, 1, BLOCK_M=64, units=66),
    ]
    variants = ChoiceVariants(tmp_path)
    identities = [variants.identity(each) for each in (base, *others)]
    assert all(map(variants.is_known, (base, *others)))
    assert len({*identities}) == len(identities)


@pytest.mark.parametrize(
    "value", ["'ieee'", "tl.float32", "a=b", "1e", "[1, 2]", "0x10", "-1", "None", "True", "1.0"]
)
def test_arguments_of_every_kind(tmp_path: Path, value: str) -> None:
    """Inductor hashes `repr` of an argument; the module has its `str`."""
    choices: dict[str, int | bool | str] = {"FLOAT32_PRECISION": value}
    if value in ("-1", "None", "True", "1.0", "0x10"):  # as text a number, and no string
        choices = {"LIMIT": _Plain(value)}
    first, second = (write_choice(tmp_path, index, **choices) for index in (0, 1))
    assert ChoiceVariants(tmp_path).on(first, 1) == second


def test_a_module_that_is_missing_or_was_changed_says_nothing(tmp_path: Path) -> None:
    first, second = (write_choice(tmp_path, index, BLOCK_M=64) for index in (1, 2))
    _module(tmp_path, first).unlink()
    changed = _module(tmp_path, second)
    changed.write_text(changed.read_text().replace("A = arg_A", "A = arg_B"))
    variants = ChoiceVariants(tmp_path)
    for each in (first, second):
        assert not variants.is_known(each)
        assert variants.device(each) is None
        assert variants.on(each, 0) == variants.identity(each) == each


def test_a_module_that_comes_later_is_read(tmp_path: Path) -> None:
    hash_ = write_choice(tmp_path / "elsewhere", 3, BLOCK_M=64)
    variants = ChoiceVariants(tmp_path)
    assert variants.device(hash_) is None
    write_choice(tmp_path, 3, BLOCK_M=64)
    assert variants.device(hash_) == 3


def test_a_module_behind_a_link_or_of_two_devices_is_none(tmp_path: Path) -> None:
    real = write_choice(tmp_path / "elsewhere", 3, BLOCK_M=64)
    path = _module(tmp_path, real)
    path.parent.mkdir(parents=True)
    path.symlink_to(_module(tmp_path / "elsewhere", real))
    assert not ChoiceVariants(tmp_path).is_known(real)
    two = write_choice(tmp_path, 1, NOTE="DeviceProperties(type='cuda', index=2, cc=90)")
    assert not ChoiceVariants(tmp_path).is_known(two)


@pytest.mark.parametrize(
    "hash_", ["mm-" + "c" * 52, "rocm_triton-ab12-cd", "Cpp-" + "c" * 52, "rocm_gemm-1f", "odd"]
)
def test_other_choices_have_one_hash_on_all_devices(tmp_path: Path, hash_: str) -> None:
    variants = ChoiceVariants(tmp_path)
    assert variants.is_known(hash_)
    assert variants.device(hash_) is None
    assert variants.on(hash_, 4) == hash_


def test_choices_by_device(tmp_path: Path) -> None:
    first, second = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 1))
    aten = "mm-" + "c" * 52
    split = ChoiceVariants(tmp_path).by_device([second, aten, first])
    assert split == {1: [second], None: [aten], 0: [first]}


def test_devices_that_compiled_something(tmp_path: Path) -> None:
    assert device_folders(tmp_path) == []
    compiled_on(tmp_path, 3, 0)
    (tmp_path / "triton" / "not-a-device").mkdir()
    (tmp_path / "triton" / "99999").mkdir()
    assert device_folders(tmp_path) == [0, 3]


def test_a_module_that_is_launched_in_no_known_way_says_nothing(tmp_path: Path) -> None:
    text = "DeviceProperties(type='cuda', index=1, cc=90)\n"
    key = code_hash(text.strip().encode() + b"||")
    path = tmp_path / key[1:3] / f"{key}.py"
    path.parent.mkdir()
    path.write_text(text)
    assert read_module(tmp_path, key) is None
    assert not ChoiceVariants(tmp_path).is_known(f"triton_mm-{key}")


def test_a_module_with_warp_groups_is_known(tmp_path: Path) -> None:
    text = (
        "num_stages=3,\nnum_warps=4, x=1, num_consumer_groups=2,\nnum_buffers_warp_spec=5,\n"
        "DeviceProperties(type='cuda', index=1, multi_processor_count=132, cc=90)\n"
        "    BLOCK_M : tl.constexpr = 64\n    INDEX_DTYPE : tl.constexpr = tl.int32\n"
    )
    extra = b"BLOCK_M=64-num_stages=3-num_warps=4-"
    for hashed in (extra, extra + b"num_consumer_groups=2-num_buffers_warp_spec=5-"):
        key = code_hash(text.strip().encode() + b"||" + hashed)
        path = tmp_path / key[1:3] / f"{key}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        module = read_module(tmp_path, key)
        assert module is not None and (module.index, module.extra) == (1, hashed)
        assert module.properties == {"multi_processor_count": "132", "cc": "90"}
        assert module.key(1) == key != module.key(2)
        path.write_bytes(path.read_bytes() + b"#" * (1 << 20))
        assert read_module(tmp_path, key) is None, "it is too long"


def test_the_hashes_on_several_devices(tmp_path: Path) -> None:
    hashes = {index: write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3)}
    assert ChoiceVariants(tmp_path).all(hashes[3], (0, 3)) == hashes
    assert ChoiceVariants(tmp_path).all("mm-c1", (0, 3)) == {0: "mm-c1", 3: "mm-c1"}


@pytest.mark.parametrize(("index", "is_device"), [("1023", True), ("1024", False), ("x", False)])
def test_the_highest_index_of_a_device(tmp_path: Path, index: str, is_device: bool) -> None:
    (tmp_path / "triton" / index).mkdir(parents=True)
    assert bool(device_folders(tmp_path)) is is_device


class _Plain(str):
    """A value whose `repr` is its text, as a number's."""

    def __repr__(self) -> str:
        return str(self)


def _module(root: Path, hash_: str) -> Path:
    key = hash_.rpartition("-")[2]
    return root / key[1:3] / f"{key}.py"

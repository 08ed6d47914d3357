"""Configs of Inductor's own kernels that are nearly the same are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cache import best_config as module
from backend.cache.best_config import (
    KernelFiles,
    check_plain,
    config_from_texts,
    constants_of,
    descends,
    is_file,
    is_folder,
    kernel_source_of,
    parse,
    read,
    with_config,
)
from backend.cache.configs import described
from backend.errors import CacheUnreadable
from backend.model.inductor_kernel import comparable_config
from tests.support.inductor_kernels import best_config, put_config, put_source, source

FILE = Path("a.best_config")
DIGEST = "A" * 52


def test_each_is_described_as_it_is_however_alike() -> None:
    values = (1, True, 1.0, "1", "True", None, 0, False)
    told = []
    for _ in range(2):  # the second time as they were kept
        for value in values:
            text = json.dumps(best_config(FLAG=value))
            config = parse(Path("a.best_config"), text.encode())
            told.append((config.hash, config.name, config.text))
    whole = [described(comparable_config({"XBLOCK": 256, "FLAG": value}, 4, 1)) for value in values]
    assert told == [*whole, *whole] and len({hash_ for hash_, _, _ in whole}) >= 7


def encoded(**members: object) -> bytes:
    return json.dumps(best_config(**members)).encode()  # type: ignore[arg-type]


def test_which_files_and_folders_are_looked_at() -> None:
    assert is_file(FILE) and is_file("ab/a.best_config") and not is_file("a.best_configs")
    assert [is_folder(name) for name in ("ab", "a7", "a", "abc", "a1", "AB")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "seconds"),
    [(105, 0.105), (0, 0.0), (-1, None), (1 << 40, None), (True, None), (1.5, None), (None, None)],
)
def test_how_long_a_kernel_was_tuned(ms: object, seconds: float | None) -> None:
    assert parse(FILE, encoded(time_taken_ms=ms)).seconds == seconds


@pytest.mark.parametrize(("name", "compiled"), [(DIGEST, DIGEST), ("../x", None), (7, None)])
def test_only_the_name_of_a_folder_of_triton_is_followed(name: object, compiled: object) -> None:
    assert parse(FILE, encoded(triton_cache_hash=name)).compiled == compiled


def test_the_constants_of_a_config_are_what_inductor_compares() -> None:
    document = best_config(
        extra_options={}, num_consumer_groups=0, num_buffers_warp_spec=0, kpack=2
    )
    assert constants_of(document) == {"XBLOCK": 256, "kpack": 2}
    config = parse(FILE, json.dumps(document).encode())
    assert config.constants == {"XBLOCK", "kpack"}
    assert config.configs_hash == document["configs_hash"]
    assert config.text == "XBLOCK=256, kpack=2, num_warps=4, num_stages=1"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encoded() + b" " * (64 << 10), "more than 64 KiB"),
        (encoded(num_warps=True), "no config of a Triton kernel"),
        (encoded(num_stages="1"), "no config of a Triton kernel"),
        (encoded(configs_hash=None), "no config of a Triton kernel"),
        (encoded(XBLOCK=float("inf")), "that Inductor does not write"),
        (encoded(XBLOCK=[1]), "that Inductor does not write"),
        (encoded(**{f"A{n}": n for n in range(94)}), "that Inductor does not write"),
    ],
)
def test_what_is_no_best_config_is_named(data: bytes, why: str) -> None:
    with pytest.raises(CacheUnreadable, match=f"{FILE} .*{why}; move it away"):
        parse(FILE, data)


def test_the_largest_config_is_read() -> None:
    assert len(parse(FILE, encoded(**{f"A{n}": n for n in range(93)})).constants) == 94
    data = encoded()
    assert parse(FILE, data + b" " * ((64 << 10) - len(data))).hash == parse(FILE, data).hash


TEXTS = {"XBLOCK": "512", "KIND": "tf32", "num_warps": "8", "num_stages": "1"}


def test_a_config_comes_back_from_its_texts() -> None:
    hash = described(comparable_config({"XBLOCK": 512, "KIND": "tf32"}, 8, 1))[0]
    members = {"XBLOCK": 512, "KIND": "tf32", "num_warps": 8, "num_stages": 1}
    assert config_from_texts(TEXTS, hash) == members
    assert config_from_texts(TEXTS, "triton_config-0") is None
    for name in ("num_warps", "num_stages"):
        assert config_from_texts({**TEXTS, name: "many"}, hash) is None
        assert config_from_texts({n: t for n, t in TEXTS.items() if n != name}, hash) is None


def test_another_config_keeps_what_is_said_of_the_tuning() -> None:
    members = {"num_warps": 8, "num_stages": 2, "YBLOCK": 4}
    written = json.loads(with_config(FILE, encoded(), members, found=False))
    expected = {**best_config(), **members}
    del expected["XBLOCK"]
    assert written == expected
    written = json.loads(with_config(FILE, encoded(), {"XBLOCK": 1}, found=True))
    assert written == {**best_config(1), "found_by_coordesc": True}
    with pytest.raises(
        CacheUnreadable, match="'KIND' to 'exit\\(\\)', which PyTorch would execute"
    ):
        with_config(FILE, encoded(KIND="exit()"), {"XBLOCK": 1}, found=False)
    check_plain(FILE, encoded(KIND="tf32"))


def test_whether_a_kernel_descends(tmp_path: Path) -> None:
    for descent in (False, True):
        kernel = put_source(tmp_path / str(descent), source(descent=descent))
        path = put_config(kernel.parent, best_config())
        assert descends(kernel_source_of(path, read(path))) is descent


def test_a_config_whose_kernel_is_gone_says_so(tmp_path: Path) -> None:
    kernel = put_source(tmp_path, source())
    path = put_config(kernel.parent, best_config())
    assert kernel_source_of(path, read(path)).path == kernel
    kernel.unlink()
    with pytest.raises(CacheUnreadable, match="its kernel is not in the folder"):
        kernel_source_of(path, read(path))


def test_the_files_of_a_kernel_follow_the_disk(tmp_path: Path) -> None:
    kernels = [put_source(tmp_path, source(added=float(n))) for n in range(2)]
    lists = ("2" * 64, "1" * 64, "2" * 64)
    paths = [
        put_config(kernels[0].parent, best_config(configs_hash=digest), str(n) * 64)
        for n, digest in enumerate(lists)
    ]
    other = put_config(kernels[1].parent, best_config(configs_hash="3" * 64))
    (tmp_path / "not a folder of code").mkdir()
    put_config(tmp_path / "not a folder of code", best_config())
    files = KernelFiles(tmp_path)
    kernel = kernel_source_of(paths[0], read(paths[0])).kernel
    second = kernel_source_of(other, read(other)).kernel
    for _ in range(2):  # the second time as they were kept
        found = files.of(kernel.op, kernel.inputs)
        assert [path for path, _ in found] == paths
        assert {source.path for _, source in found} == {kernels[0]}
        assert files.lists(kernel.op, kernel.inputs) == ("1" * 64, "2" * 64)
        assert files.lists(second.op, second.inputs) == ("3" * 64,)
    assert files.of("reduction", kernel.inputs) == [] == files.of(kernel.op, second.inputs + "x")
    paths[0].write_text("{}")
    assert [path for path, _ in files.of(kernel.op, kernel.inputs)] == paths[1:]
    paths[1].unlink()
    paths[0].write_text(json.dumps(best_config()))
    assert [path for path, _ in files.of(kernel.op, kernel.inputs)] == [paths[0], paths[2]]
    assert KernelFiles(tmp_path / "missing").of(kernel.op, kernel.inputs) == []


def test_a_folder_with_too_many_files_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BESIDE", 2)
    kernel = put_source(tmp_path, source())
    paths = [put_config(kernel.parent, best_config(), str(n) * 64) for n in range(3)]
    parsed = kernel_source_of(paths[0], read(paths[0])).kernel
    found = KernelFiles(tmp_path).of(parsed.op, parsed.inputs)
    assert [path for path, _ in found] == paths[:2]

"""The configs of Triton's own autotuning: where their files are, and what they are called."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from backend.cache import configs
from backend.cache.configs import cache_folder, described, folders_of, hash_of, parse, path_in
from backend.errors import CacheUnreadable

CONFIG: dict[str, Any] = {"kwargs": {"BLOCK": 64}, "num_warps": 4, "num_stages": 2}


def test_the_file_of_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / ("A" * 52) / "add.autotune.json"
    assert path_in(tmp_path, "A" * 52, "add") == path and configs.is_file(path)
    assert not configs.is_file(path.with_suffix(".txt"))
    for digest, kernel in (("A" * 51, "add"), ("../" + "A" * 49, "add"), ("A" * 52, "../add")):
        with pytest.raises(CacheUnreadable, match="is not a folder of Triton's cache"):
            path_in(tmp_path, digest, kernel)


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"TRITON_CACHE_DIR": "/a/../b", "TRITON_HOME": "/c", "HOME": "/d"}, "/b"),
        ({"TRITON_HOME": "/c", "HOME": "/d"}, "/c/.triton/cache"),
        ({"HOME": "/d"}, "/d/.triton/cache"),
        ({}, f"{Path.home()}/.triton/cache"),
    ],
)
def test_tritons_cache_of_an_environment(env: dict[str, str], folder: str) -> None:
    assert cache_folder(env) == Path(folder)


def test_the_caches_of_a_cache_dir(tmp_path: Path) -> None:
    own = tmp_path / "own"
    env = {"TRITON_CACHE_DIR": str(own)}
    assert folders_of(tmp_path / "root", env) == []
    for name in ("1", "0", "other"):
        (tmp_path / "root" / "triton" / name).mkdir(parents=True)
    (tmp_path / "root" / "triton" / "2").write_text("")
    inner = [tmp_path / "root" / "triton" / name for name in "01"]
    assert folders_of(tmp_path / "root", env) == inner
    own.mkdir()
    assert folders_of(tmp_path / "root", env) == [*inner, own]
    assert folders_of(tmp_path / "root", {"TRITON_CACHE_DIR": str(inner[1])}) == inner


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({}, "BLOCK=64 w4 s2", "BLOCK=64, num_warps=4, num_stages=2"),
        ({"num_ctas": 1, "maxnreg": None}, "BLOCK=64 w4 s2", "BLOCK=64, num_warps=4, num_stages=2"),
        ({"num_ctas": 2, "maxnreg": 128}, "BLOCK=64 w4 s2 c2 r128", "num_ctas=2, maxnreg=128"),
        ({"kwargs": {"KIND": "fast", "ON": True}}, "KIND=fast ON=true w4 s2", "KIND=fast, ON=true"),
        ({"kwargs": 7}, "w4 s2", "num_warps=4, num_stages=2"),
    ],
)
def test_what_a_config_is_called(change: dict[str, Any], name: str, text: str) -> None:
    config = {**CONFIG, **change}
    hash, short, whole = described(config)
    assert short == name and text in whole
    assert hash == hash_of(config) and hash.startswith("triton_config-")
    assert described({**CONFIG, "kwargs": {"X": "y" * 2000}})[1].startswith("X=yyy")


def test_a_member_that_is_not_set_makes_no_other_config() -> None:
    assert hash_of({**CONFIG, "maxnreg": None}) == hash_of(CONFIG)
    hashes = {hash_of({**CONFIG, "num_warps": n}) for n in (1, 2, 4)}
    assert len(hashes) == 3 and hash_of(CONFIG) in hashes


def content(*pairs: object, key: object = (1024, "torch.float16")) -> bytes:
    return json.dumps({"key": key, "configs_timings": pairs}).encode()


def test_the_times_of_configs(tmp_path: Path) -> None:
    path = tmp_path / ("A" * 52) / "add.autotune.json"
    others = [{**CONFIG, "num_warps": n} for n in (8, 16, 32, 64)]
    times: list[object] = [[2.0, 1.5, 2.5], [1.0, 0.5], 3.0, [math.inf] * 3, [4.0, 1.0, math.inf]]
    kernel = parse(path, content(*zip([CONFIG, *others], times, strict=True), [CONFIG, [9.0]]))
    assert (kernel.kernel, kernel.key) == ("add", (1024, "torch.float16"))
    assert kernel.inputs == 'add[1024, "torch.float16"]:AAAAAAAA'
    assert [(config.ms, config.quantiles) for config in kernel.configs] == [
        (9.0, None),  # the last of duplicates counts
        (1.0, None),
        (3.0, None),
        (math.inf, None),
        (4.0, None),
    ]
    assert parse(path, content([CONFIG, times[0]])).configs[0].quantiles == (1.5, 2.5)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("add", content([CONFIG, 1.0, 2.0]), "a config without its times"),
        ("add", content([CONFIG, -1.0]), "a config without its times"),
        ("add", content([[], 1.0]), "a config without its times"),
        ("add", content(key={}), "no times of Triton configs"),
        ("a b", content(), "called after no kernel"),
        ("add", content(key=["x" * 16_400]), "a key of more than 16384 characters"),
        ("add", content() + b" " * (8 << 20), "more than 8 MiB"),
    ],
)
def test_what_is_no_file_of_configs_is_named(
    tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    path = tmp_path / ("A" * 52) / f"{name}.autotune.json"
    with pytest.raises(CacheUnreadable, match=why) as caught:
        parse(path, data)
    assert str(path) in str(caught.value)
    assert parse(path.with_name("add.autotune.json"), content()).configs == ()

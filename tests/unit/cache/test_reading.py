"""Cache dir, inputs keys, autotune cache files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cache.autotune import preferred, raise_ms, read_cache, read_caches
from backend.disk.layout import Layout, cache_dir
from backend.disk.safe import MAX_BYTES
from backend.errors import CacheUnreadable, InputsKeyInvalid
from backend.model.problem import (
    InputsKey,
    TensorSpec,
    TuningKey,
    format_inputs_key,
    parse_inputs_key,
)
from tests.support.places import CORPUS

_word = st.from_regex(r"[a-z][a-z0-9_.]{0,20}", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    sizes = tuple(draw(st.lists(st.integers(0, 2**40), max_size=6)))
    strides = tuple(draw(st.integers(-1, 2**40)) for _ in sizes)
    return TensorSpec(draw(_word), draw(_word), sizes, strides, draw(st.integers(0, 2**40)))


@given(
    st.lists(specs(), max_size=6),
    st.sampled_from(["", "_1024", ":benchmark_policy=eager", "_64:benchmark_policy=eager"]),
)
def test_keys_round_trip(inputs: list[TensorSpec], suffix: str) -> None:
    key = InputsKey(tuple(inputs), suffix)
    assert parse_inputs_key(format_inputs_key(key)) == key


@given(st.text(alphabet="[]()', \"\\x0123456789cpu_:=-\n", max_size=80))
def test_other_text_is_refused_or_round_trips(text: str) -> None:
    try:
        key = parse_inputs_key(text)
    except InputsKeyInvalid:
        return
    assert format_inputs_key(key) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[('cpu', 'torch.float32', 1, 2, 3)] ",
        "[('cpu', 'torch.float32', 1, 2)]",  # sizes and strides of different length
        "[('cpu', 'torch.float32', 007, 1, 0)]",
        "[('cpu', 'torch.float32', 1, 1, 0), ]",
        "[('cpu', 'torch.float32', ٣, 1, 0)]",
        "[__import__('os').system('true')]",
        "[" * 60_000,
        "[" + "('cpu', 'f', " * 5_000,
        "[('cpu', 'torch.float32'" + ", 1" * 20_000,
        "[('cpu', 'torch.float32', " + "9" * 60_000 + ", 1, 0)]",
        "[('cpu', 'torch.float32', 0)]" + "_" * 60_000 + "\n",
    ],
    ids=range(13),
)
def test_hostile_keys_are_refused(text: str) -> None:
    with pytest.raises(InputsKeyInvalid) as caught:
        parse_inputs_key(text)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_key_is_split() -> None:
    key = parse_inputs_key(
        "[('cuda', 'torch.bfloat16', 64, 32, 32, 1, 5), ('cuda', 'torch.float32', 0)]_7"
    )
    assert key.specs[0] == TensorSpec("cuda", "torch.bfloat16", (64, 32), (32, 1), 5)
    assert key.specs[1] == TensorSpec("cuda", "torch.float32", (), (), 0)
    assert key.suffix == "_7"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the checkout")
def test_caches_of_torch_2_5_to_2_15() -> None:
    found = {}
    for path in CORPUS.glob("local_cache_*.json"):
        file = read_cache(path)
        assert not file.problems
        for key, timings in file.entries.items():
            assert format_inputs_key(parse_inputs_key(key.inputs)) == key.inputs
            assert all(ms > 0 for ms in timings.values())
        found[path.name] = len(file.entries)
    assert found == {
        "local_cache_251_linear.json": 2,
        "local_cache_280_bmm.json": 1,
        "local_cache_2130_multi.json": 9,
        "local_cache_2150_bmm.json": 1,
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_infinity_nan_and_unusable_parts(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write(
        layout.autotune / "aaa",
        '{"system": {"hash": "x"}, "cache": {"mm": {"[]": {"highest":'
        ' {"a": 1, "b": Infinity, "c": NaN, "d": "fast", "e": 1e999}, "high": 3}}, "odd": []}}',
    )
    write(layout.autotune / "bbb", "{torn")
    write(layout.autotune / ".123.456.tmp", "{torn")
    files, problems = read_caches(layout)
    (file,) = files
    timings = file.entries[TuningKey("mm", "[]", "highest")]
    assert timings["a"] == 1 and timings["b"] == timings["e"] == math.inf
    assert math.isnan(timings["c"]) and "d" not in timings
    assert file.system == {"hash": "x"} and file.system_hash == "aaa"
    assert len(problems) == 4
    assert [p.source for p in problems].count(str(layout.autotune / "bbb")) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"cache": 1}', "[" * 100_000, "\xff\xfe", '{"cache": {}', "9" * 9_999],
    ids=range(8),
)
def test_a_file_that_is_no_cache(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hash"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CacheUnreadable) as caught:
        read_cache(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_what_must_not_block_or_fill_the_memory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    for name in ("fifo", "huge", "missing", "."):
        with pytest.raises(CacheUnreadable):
            read_cache(tmp_path / name)


def test_the_cache_dir_is_that_of_inductor(tmp_path: Path) -> None:
    """Asks torch itself, for several environments."""
    program = "from torch._inductor.runtime.cache_dir_utils import cache_dir; print(cache_dir())"
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    bare = {"PATH": os.environ["PATH"], "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    for extra in (
        {"TORCHINDUCTOR_CACHE_DIR": f"{link}/x/../y"},
        {"TMPDIR": str(tmp_path)},
        {"TMPDIR": str(tmp_path / "missing"), "TEMP": str(tmp_path), "USER": "a:b/c"},
    ):
        env = {**bare, **extra}
        child = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        )
        assert str(cache_dir(env)) == child.stdout.strip()


def test_nothing_here_imports_torch() -> None:
    program = (
        "import sys, backend.pins.store, backend.disk.sessions, backend.cache.autotune;"
        "sys.exit([m for m in ('torch', 'filelock', 'rocm_tui') if m in sys.modules] or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_smallest_number_that_is_a_time_is_preferred(tmp_path: Path) -> None:
    path = tmp_path / "hash"
    timings = {
        "[a]": {"highest": {"slow": 2.0, "fast": 1, "failed": math.inf, "odd": "0"}},
        "[b]": {"highest": {"pinned": 2.0, "rival": raise_ms(1.0)}, "high": {"failed": math.inf}},
    }
    path.write_text(json.dumps({"cache": {"mm": timings}}))
    assert preferred(path) == {
        TuningKey("mm", "[a]", "highest"): ["fast", "slow"],
        TuningKey("mm", "[b]", "highest"): ["pinned", "rival"],
    }

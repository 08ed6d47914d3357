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

from backend.cache.autotune import (
    cache_paths,
    preferred,
    raise_ms,
    read_cache,
    read_caches,
    recorded_pins,
)
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
from tests.support.store_disks import make_stale

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


@pytest.mark.parametrize("number", [0, 0.0, -1.0, 1e7, 1e8, 1e12, 1e20, 1e300])
def test_a_number_that_no_kernel_takes_is_a_problem_and_no_time(
    tmp_path: Path, number: float
) -> None:
    """1e12 is what a pin makes of 0.9 ms, if a pin is recorded and its choice's number is beside
    it; another cache's pins, or another entry's, prove nothing."""
    path = tmp_path / "cache" / "hash"
    path.parent.mkdir()
    entry = {"odd": number, "b": math.inf}
    path.write_text(json.dumps({"cache": {"mm": {"[x]": {"highest": entry}}}}))
    file = read_cache(path)
    assert file.entries == {TuningKey("mm", "[x]", "highest"): {"b": math.inf}}
    (problem,) = file.problems
    assert problem.what.startswith(f"{number} of odd, mm at [x]: not the milliseconds of a kernel")
    path.write_text(json.dumps({"cache": {"mm": {"[x]": {"highest": {**entry, "a": 2.0}}}}}))
    pin = {"op": "mm", "inputs": "[x]", "system_hash": "hash"}
    pins = tmp_path / "rocm_tui" / "pins.json"
    pins.parent.mkdir()
    for content in (
        None,
        "{torn",
        "[]",
        json.dumps({"pins": 3, "released": [None], "history": [{**pin, "inputs": "[y]"}]}),
        json.dumps({"pins": [{**pin, "system_hash": "elsewhere"}]}),
    ):
        if content is not None:
            pins.write_text(content)
        file = read_cache(path)
        assert file.entries == {TuningKey("mm", "[x]", "highest"): {"a": 2.0, "b": math.inf}}
        assert len(file.problems) == 1
    for name in ("pins", "released", "history"):
        pins.write_text(json.dumps({name: [pin]}))
        times = read_cache(path).entries[TuningKey("mm", "[x]", "highest")]
        assert times.get("odd") == (pytest.approx(1e12 / 2**40) if number == 1e12 else None)


def test_a_number_without_a_pin_says_so(tmp_path: Path) -> None:
    path = write(
        Layout(tmp_path).autotune / "hash",
        '{"cache": {"mm": {"[x]": {"highest": {"a": 2.0, "odd": 1e12}}}}}',
    )
    (problem,) = read_cache(path).problems
    assert "no pin in rocm_tui/pins.json raised it; tune it again" in problem.what
    key = TuningKey("mm", "[x]", "highest")
    assert read_cache(path).untimed == {key: ("odd",)}
    write(path, path.read_text().replace("2.0", "Infinity"))
    assert read_cache(path).untimed == {}, "there is no time that it could be above"
    write(path, path.read_text().replace("1e12", "0"))
    (problem,) = read_cache(path).problems
    assert "no pin" not in problem.what and "0 of odd, mm at [x]: not the milli" in problem.what


def test_where_pins_cannot_be_read_no_number_is_said_to_be_unpinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    text = '{"cache": {"mm": {"[x]": {"highest": {"a": 2.0, "held": 1e12}}}}}'
    path = write(layout.autotune / "hash", text)
    write(layout.pins, '{"pins": [{"op": "mm", "inputs": "[x]", "system_hash": "hash"}]}')
    make_stale(monkeypatch, layout.pins)
    file = read_cache(path)
    (problem,) = file.problems
    assert f"unless a pin raised it: cannot read {layout.pins}" in problem.what
    assert "no pin" not in problem.what and "tune it again" not in problem.what
    assert file.untimed == {TuningKey("mm", "[x]", "highest"): ("held",)}
    with pytest.raises(CacheUnreadable, match=r"pins\.json"):
        recorded_pins(path)


def test_caches_that_cannot_be_listed_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    write(layout.autotune / "hash", '{"cache": {}}')
    make_stale(monkeypatch, layout.autotune)
    with pytest.raises(CacheUnreadable, match="Stale file handle"):
        cache_paths(layout)
    files, (problem,) = read_caches(layout)
    assert files == [] and problem.source == str(layout.autotune)


def test_a_time_that_was_not_a_number_is_a_failure_under_a_pin_too(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    path = write(
        layout.autotune / "hash",
        json.dumps({"cache": {"mm": {"[x]": {"highest": {"a": 2.0, "bad": raise_ms(math.nan)}}}}}),
    )
    write(layout.pins, '{"pins": [{"op": "mm", "inputs": "[x]", "system_hash": "hash"}]}')
    file = read_cache(path)
    times = file.entries[TuningKey("mm", "[x]", "highest")]
    assert math.isnan(times["bad"]) and not file.problems


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
        "[a]": {"highest": {"slow": 2.0, "fast": 0.5, "failed": math.inf, "odd": "0", "t": True}},
        "[zero]": {"highest": {"least": 1, "zero": 0, "negative": -1}},
        "[b]": {"highest": {"pinned": 2.0, "rival": raise_ms(1.0)}, "high": {"failed": math.inf}},
    }
    path.write_text(json.dumps({"cache": {"mm": timings}}))
    assert preferred(path) == {
        TuningKey("mm", "[a]", "highest"): ["fast", "slow"],
        TuningKey("mm", "[zero]", "highest"): ["zero", "least"],
        TuningKey("mm", "[b]", "highest"): ["pinned", "rival"],
    }


def test_which_files_are_caches(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert cache_paths(layout) == []
    for name in ("b", "a", ".a.lock"):
        write(layout.autotune / name, '{"cache": {"odd": 7}}')
    (layout.autotune / "folder").mkdir()
    assert cache_paths(layout) == [layout.autotune / name for name in "ab"]
    files, problems = read_caches(layout)
    assert [file.system_hash for file in files] == ["a", "b"]
    assert [(p.source, p.what) for p in problems] == [
        (str(layout.autotune / name), "odd holds no object") for name in "ab"
    ]

"""A pin of a kernel of `@triton.autotune` is what stock Triton takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cache.configs import hash_of, read
from backend.cache.variants import ChoiceVariants
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, PinRefused
from backend.model.inductor_kernel import TRITON, kernel_name, sizes_of
from backend.model.problem import TuningKey
from backend.pins.holders import TritonConfigs
from backend.pins.store import PinStore
from backend.sharing.plan import steps_of
from backend.sharing.share import Machine, PinExport, SharedPin, parse_share, share_text
from tests.support import autotuned

CONFIG = {"kwargs": {"BLOCK": 32}, "num_warps": 1, "num_ctas": 1, "num_stages": 3}
OTHER = {**CONFIG, "kwargs": {"BLOCK": 64}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinStore:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (tmp_path / "inductor").mkdir()
    return PinStore(Layout(tmp_path / "inductor"))


def key_of(path: Path) -> TuningKey:
    return TuningKey(TRITON, read(path).inputs, "")


def config_of(path: Path, block: int) -> str:
    (config,) = (c for c in read(path).configs if f"BLOCK={block} " in c.name)
    return config.hash


def written(folder: Path, content: object, digest: str = "A" * 52) -> Path:
    path = folder / digest / "k.autotune.json"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_stock_triton_takes_the_pinned_config_and_times_nothing(
    store: PinStore, tmp_path: Path
) -> None:
    cache = tmp_path / "triton"
    first = autotuned.run(cache, 1024, 4096)
    assert first["benched"] == [32, 64, 128] * 2
    assert [launch["block"] for launch in first["launched"]] == [64, 64]
    before = {path: path.read_bytes() for path in autotuned.files(cache)}
    (pinned,) = (path for path in before if sizes_of(read(path).inputs).startswith("1024"))

    report = store.pin(pinned.parent.name, key_of(pinned), config_of(pinned, 32))
    assert report.numbers == 2 and report.status and report.status.state == "unproven"
    assert kernel_name(report.pin.inputs) == "scale_kernel"
    for path, data in before.items():
        assert (path.read_bytes() == data) == (path != pinned)
    assert {config.ms for config in read(pinned).configs} == set(autotuned.TIMES.values())
    second = autotuned.run(cache, 1024, 4096)
    assert second["benched"] == []
    assert second["launched"] == [{"block": 32, "warps": 1}, {"block": 64, "warps": 2}]

    store.unpin(key_of(pinned))
    assert {path: path.read_bytes() for path in autotuned.files(cache)} == before
    assert autotuned.run(cache, 1024)["launched"] == [{"block": 64, "warps": 2}]


def test_other_configs_are_another_file_which_no_pin_touches(
    store: PinStore, tmp_path: Path
) -> None:
    cache = tmp_path / "triton"
    autotuned.run(cache, 1024)
    (old,) = autotuned.files(cache)
    store.pin(old.parent.name, key_of(old), config_of(old, 32))
    later = autotuned.run(cache, 1024, BLOCKS="[32, 64]")
    assert later["benched"] == [32, 64] and later["launched"][-1]["block"] == 64
    (new,) = set(autotuned.files(cache)) - {old}
    assert key_of(new) != key_of(old)
    assert key_of(new).inputs.partition(":")[0] == key_of(old).inputs.partition(":")[0]


def test_a_cache_that_was_emptied_is_timed_anew_and_pinned_again(
    store: PinStore, tmp_path: Path
) -> None:
    cache = tmp_path / "triton"
    autotuned.run(cache, 1024)
    (path,) = autotuned.files(cache)
    key = key_of(path)
    store.pin(path.parent.name, key, config_of(path, 32))
    path.unlink()
    (status,) = store.reconcile()
    assert status.state == "orphaned"
    autotuned.run(cache, 1024, times={32: 4.0, 64: 1.0, 128: 2.0})
    (status,) = store.reconcile()
    assert (status.state, status.pin.drifts) == ("unproven", 1)
    assert autotuned.run(cache, 1024)["launched"][-1]["block"] == 32
    store.unpin(key)
    assert {config.ms for config in read(path).configs} == {4.0, 1.0, 2.0}


def test_a_failed_config_cannot_be_pinned(store: PinStore, tmp_path: Path) -> None:
    failed = [float("inf")] * 3
    path = written(
        tmp_path / "triton",
        {"key": [1], "configs_timings": [[CONFIG, failed], [OTHER, [1.0, 0.9, 1.1]]]},
    )
    before = path.read_bytes()
    with pytest.raises(PinRefused, match="failed when it was tuned"):
        store.pin(path.parent.name, key_of(path), hash_of(CONFIG))
    with pytest.raises(PinRefused, match="not a config of this kernel"):
        store.pin(path.parent.name, key_of(path), "triton_config-0")
    with pytest.raises(PinRefused, match="set TRITON_CACHE_DIR"):
        store.pin("B" * 52, TuningKey(TRITON, "k[1]:BBBBBBBB", ""), hash_of(OTHER))
    store.pin(path.parent.name, key_of(path), hash_of(OTHER))
    assert path.read_bytes() == before  # what failed is out of reach as it is


def test_a_kernel_that_no_cache_here_has_is_refused(store: PinStore) -> None:
    """As with a pin from elsewhere, which names no folder of Triton's cache, or another's."""
    for digest in (None, "", "A" * 52):
        with pytest.raises(PinRefused, match="is in no cache of Triton; run its program once"):
            store.pin(digest, TuningKey(TRITON, "k[1]:BBBBBBBB", ""), hash_of(CONFIG))


@pytest.mark.parametrize("layout", ["one number", "spaces"])
def test_any_layout_of_the_text_comes_back_byte_by_byte(
    store: PinStore, tmp_path: Path, layout: str
) -> None:
    times = [1.0, 2.50] if layout == "one number" else [[1e-3, 1, 2], [0.002, 1, 2]]
    pairs = list(zip((CONFIG, OTHER), times, strict=True))
    text = json.dumps({"configs_timings": pairs, "key": ["a", [1]]}, indent=layout == "spaces")
    path = written(tmp_path / "triton", text.replace("0.002", "2.0e-3"))
    before = path.read_bytes()
    assert store.pin(path.parent.name, key_of(path), hash_of(OTHER)).numbers == 1
    document = json.loads(path.read_text())
    (_, first), (_, second) = document["configs_timings"]
    assert first > second
    store.unpin(key_of(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"key": [], "configs_timings": [1]}',
        '{"key": [], "configs_timings": [[{}, []]]}',
        '{"key": [], "configs_timings": [[{}, ["1"]]]}',
        '{"key": [], "configs_timings": [[{}, [true]]]}',
        '{"key": {}, "configs_timings": []}',
        "[" * 100_000,
        '{"key": ["' + "x" * 20_000 + '"], "configs_timings": []}',
    ],
)
def test_a_file_of_another_kind_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CacheUnreadable) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("first", "second", "ms"),
    [
        ([1e12, 1e12, 1e12], [2.0, 1.9, 2.1], None),
        ([1e12, 0.8, 1.0], [2.0, 1.9, 2.1], 1e12 / 2**40),
        (1e12, 2.0, 1e12 / 2**40),
        (1e12, 1e12, None),
        ([1e12, 0.8, 1.0], [1e12, 1e12, 1e12], None),
    ],
)
def test_a_number_beyond_kernels_counts_only_where_a_pin_raised_it(
    tmp_path: Path, first: object, second: object, ms: float | None
) -> None:
    """A pin raises the first number of the rivals, and leaves their percentiles."""
    path = written(tmp_path, {"key": [1], "configs_timings": [[CONFIG, first], [OTHER, second]]})
    if ms is None:
        with pytest.raises(CacheUnreadable, match="a time that no kernel takes"):
            read(path)
    else:
        assert read(path).configs[0].ms == ms


def test_what_a_file_says_is_one_printable_line(tmp_path: Path) -> None:
    config = {"kwargs": {"A\x1b[31m": "\u202e\n" * 500}, "num_warps": 1}
    path = written(tmp_path, {"key": ["\x1b[2J", None, 1.5], "configs_timings": [[config, 1.0]]})
    (timed,) = read(path).configs
    assert timed.name.isprintable() and timed.text.isprintable() and len(timed.name) < 300
    assert read(path).inputs.isprintable()


def test_an_export_is_taken_in_where_the_very_same_file_is(store: PinStore, tmp_path: Path) -> None:
    content = {"key": [1], "configs_timings": [[CONFIG, [1.0] * 3], [OTHER, [2.0] * 3]]}
    path = written(tmp_path / "triton", content)
    before = path.read_bytes()
    key = key_of(path)
    pins = tuple(
        SharedPin(TRITON, key.inputs, "", hash_of(OTHER), "mine", Machine(system_hash=digest))
        for digest in (path.parent.name, "B" * 52)
    )
    text = share_text(PinExport(pins, "me@there", 1.0)).encode()
    taken = [steps_of([pin], Machine(), store)[0] for pin in parse_share(text, "file").pins]
    assert [step.action for step in taken] == ["pin", "refused"]
    assert taken[0].numbers == 1 and path.read_bytes() == before


def test_of_a_file_that_two_processes_wrote_at_once_the_newer_content_stays(
    tmp_path: Path,
) -> None:
    holder = TritonConfigs(Layout(tmp_path), ChoiceVariants(tmp_path))
    path = tmp_path / "k.autotune.json"
    newer, older = (
        json.dumps({"key": [1], "configs_timings": [[CONFIG, [ms] * 3]]}).encode()
        for ms in (2.0, 1.0)
    )
    assert holder.merged(path, newer, older) == newer
    with pytest.raises(CacheUnreadable, match=r"k\.autotune\.json"):
        holder.merged(path, b"{", older)

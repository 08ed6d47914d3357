"""Which results count, and what gets into the cache file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import preferred, read_cache
from backend.disk.layout import Layout
from backend.errors import StoreError, UnsafePath
from backend.model.choice import Choice
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.wire.codec import WireError, dumps, loads, read, to_json
from backend.wire.jobs import TuneJob, TuneResult
from rocm_tui.fleet.facts import Chosen, Facts, FleetOptions, NoTuningDevice, choose
from rocm_tui.fleet.node import NodeAnswer
from rocm_tui.fleet.results import Results, merge
from rocm_tui.fleet.units import Unit
from tests.support.waiting_workers import SYSTEM

KEY = TuningKey("mm", "[1]", "highest")
CARD = Facts("box", "MI300X", "gfx942", 304, "SPX/NPS1", None, SYSTEM, "2.13.0")
UNIT = Unit("u", "mm 1", TuneJob(KEY.op, KEY.inputs, KEY.precision))


def result(**times: float) -> TuneResult:
    ranked = sorted(times.items(), key=lambda item: item[1])
    choices = tuple(Choice(name, name, ms if math.isfinite(ms) else None) for name, ms in ranked)
    return TuneResult(
        True,
        op=KEY.op,
        inputs=KEY.inputs,
        precision=KEY.precision,
        system_hash=SYSTEM,
        choices=choices,
        times=times,
        system={"hash": SYSTEM},
    )


def of_cards(tmp_path: Path, **facts: Facts) -> Results:
    results = Results(Layout(tmp_path), [UNIT], workers_write=False)
    results.devices = facts or {"a": CARD, "b": CARD, "c": CARD}
    results.choose(FleetOptions(), {})
    return results


def times_in(tmp_path: Path) -> dict[str, float]:
    return dict(read_cache(Layout(tmp_path).autotune / SYSTEM).entries[KEY])


def test_each_result_is_in_the_file_at_once_and_with_several_one_card_s(tmp_path: Path) -> None:
    """The whole set of one that found the winner which most did."""
    results, (unit,) = of_cards(tmp_path), [UNIT]
    results.came("u", "a", CARD, result(x=1.0, y=2.0, bad=math.inf))
    assert times_in(tmp_path) == {"x": 1.0, "y": 2.0, "bad": math.inf}
    results.came("u", "b", CARD, result(x=4.0, y=3.0, bad=math.inf))
    results.came("u", "c", CARD, result(x=6.0, y=5.0, bad=math.inf))
    assert times_in(tmp_path) == {"x": 4.0, "y": 3.0, "bad": math.inf}
    came = results.units[unit.id]
    assert (came.merged_from, came.winner, came.holds, came.of) == ("b", "y", 2, 3)
    assert list(results.disagreements) == [came] and results.count("merged") == 1


def test_a_pin_stays_and_learns(tmp_path: Path) -> None:
    results = of_cards(tmp_path)
    results.came("u", "a", CARD, result(x=1.0, y=2.0))
    store = PinStore(Layout(tmp_path))
    store.pin(SYSTEM, KEY, "y", label="y")
    results.came("u", "a", CARD, result(x=1.5, y=2.5))
    path = Layout(tmp_path).autotune / SYSTEM
    assert preferred(path)[KEY] == ["y", "x"]
    store.unpin(KEY)
    assert times_in(tmp_path) == {"x": 1.5, "y": 2.5} and preferred(path)[KEY] == ["x", "y"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"op": "bmm"}, "another problem"),
        ({"inputs": "[2]"}, "another problem"),
        ({"precision": "high"}, "another problem"),
        ({"times": {"x": math.nan}}, "no choice has a time"),
        ({"times": {"x": math.inf}}, "no choice has a time"),
        ({"times": {}}, "no choice has a time"),
        ({"ok": False, "reason": "it does not\x1b[2J compile"}, "compile"),
    ],
)
def test_what_is_no_result_of_the_problem_is_a_failure(
    tmp_path: Path, wrong: dict[str, object], why: str
) -> None:
    results = of_cards(tmp_path)
    results.came("u", "a", CARD, replace(result(x=1.0), **wrong))  # type: ignore[arg-type]
    unit = results.units["u"]
    assert unit.state == "failed" and why in unit.reasons["a"] and "\x1b" not in unit.reasons["a"]
    assert not Layout(tmp_path).autotune.exists()
    results.came("u", "b", CARD, result(x=1.0))
    assert results.units["u"].state == "merged", "another device had one"


def test_one_choice_is_no_failure(tmp_path: Path) -> None:
    results = of_cards(tmp_path)
    results.came("u", "a", CARD, TuneResult(False, "one choice", single=True))
    assert (results.count("single"), results.count("failed")) == (1, 0)


def test_a_result_that_cannot_be_kept_is_an_error_of_one_line(tmp_path: Path) -> None:
    results = of_cards(tmp_path)
    Layout(tmp_path).autotune.mkdir(parents=True)
    (Layout(tmp_path).autotune / SYSTEM).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        results.came("u", "a", CARD, result(x=1.0))
    assert not (tmp_path / "elsewhere").exists()


def test_times_of_other_systems_and_unlike_cards_stay_out(tmp_path: Path) -> None:
    results = of_cards(tmp_path)
    results.came("u", "d", replace(CARD, system_hash="1" * 64), result(x=1.0))
    assert "system hash 111111111111, the run 000000000000" in results.units["u"].reasons["d"]
    results.came("u", "e", replace(CARD, compute_units=80), result(x=1.0))
    assert "80 CUs" in results.units["u"].reasons["e"]
    assert not Layout(tmp_path).autotune.exists()


def test_the_class_that_most_devices_have_counts_or_the_one_that_is_named(tmp_path: Path) -> None:
    small = replace(CARD, compute_units=80)
    cards = {"a": CARD, "b": small, "c": CARD}
    results = of_cards(tmp_path, **cards)
    assert results.chosen.device_class == "gfx942, 304 CUs, SPX/NPS1"
    assert list(results.refused) == ["b"] and sorted(results.devices) == ["a", "c"]
    for wanted in ("80 CUs", "gfx942, 80 cus"):
        chosen = choose(cards, wanted)
        assert chosen is not None and chosen.device_class == small.device_class
    assert choose(cards, "0000") is not None and choose(cards, "gfx90a") is None
    with pytest.raises(NoTuningDevice, match="80 CUs"):
        of_cards(tmp_path, b=small).choose(FleetOptions(device_class="gfx90a"), {})
    with pytest.raises(NoTuningDevice, match="a: no torch"):
        results = Results(Layout(tmp_path), [], workers_write=False)
        results.choose(FleetOptions(), {"a": "no torch"})


@pytest.mark.parametrize("ms", [0, 0.0, -1.0, 1e7, 1e308, "-inf"])
@pytest.mark.parametrize("where", ["times", "choices"])
def test_a_node_s_answer_with_a_time_that_no_kernel_takes_is_refused(where: str, ms: Any) -> None:
    """0 ms would win on every machine."""
    words = loads(dumps(to_json(NodeAnswer("n", "0", CARD, result(x=1.0, bad=math.inf)))))
    assert read(NodeAnswer, words).result == result(x=1.0, bad=math.inf)
    if where == "times":
        words["result"]["times"]["x"] = ms
    else:
        words["result"]["choices"][0]["ms"] = ms
    with pytest.raises(WireError, match="is not a time of a kernel"):
        read(NodeAnswer, words)


BAD_NAMES = ["", "../up", ".hidden", "a/b", "/absolute", "a\0b", "a\nb", "é" * 150, "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_a_file_s_is_never_part_of_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePath):
        merge(Layout(tmp_path), Chosen(name, ""), result(x=1.0))
    with pytest.raises(UnsafePath):
        Layout(tmp_path).cache_file(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_system_hash_that_is_no_file_name_is_never_chosen(name: str, tmp_path: Path) -> None:
    assert choose({"a": replace(CARD, system_hash=name)}, None) is None
    results = of_cards(tmp_path)
    results.came(
        "u", "a", replace(CARD, system_hash=name), replace(result(x=1.0), system_hash=name)
    )
    assert results.units["u"].state == "failed"

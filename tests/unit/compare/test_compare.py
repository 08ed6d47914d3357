"""Two sets of tunings compared: which problems are the same, what is slower, what is noise."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.sharing.share import Machine, PinExport, SharedPin, read_share, share_text
from rocm_tui.actions.sources import is_export, tunings_of_export
from rocm_tui.compare.choices import same_choice
from rocm_tui.compare.comparison import compare, of_sessions, regressions, whole
from rocm_tui.compare.verdict import DEFAULT_BAND, noise
from rocm_tui.ingest.records import Seen
from rocm_tui.json_output import builtins_of
from rocm_tui.render.compare import ComparisonJson, markdown, text
from rocm_tui.session.model import Model
from tests.support.compare_lab import choices, inputs, log, only, part, shapes, tuning
from tests.support.places import CORPUS


def many(factor: float = 1.0, sigma: float = 0.0, seed: int = 1, count: int = 12) -> list[Tuning]:
    """So many problems of four choices each, every time with a factor and its own noise."""
    chance = random.Random(seed)
    return [
        tuning(n, {c: n * t * factor * chance.lognormvariate(0, sigma) for c, t in
                   (("bmm", 1.0), ("triton_a", 1.3), ("triton_b", 1.5), ("triton_c", 2.0))})
        for n in range(1, count + 1)
    ]  # fmt: skip


# Which problems are the same


def test_a_problem_is_known_by_its_keys_and_the_rest_is_in_one_part_alone() -> None:
    found = compare(
        part(tuning(1, {"bmm": 1.0}), tuning(2, {"bmm": 3.0})),
        part(tuning(1, {"bmm": 1.0}), tuning(3, {"bmm": 4.0}), tuning(4, {"bmm": 5.0})),
    )
    assert [pair.b.tuning.shapes for pair in found.common] == [shapes(1)]
    assert [point.ms for point in found.only_a] == [3.0]
    assert [point.ms for point in found.only_b] == [5.0, 4.0]


def test_a_log_is_paired_with_a_cache_by_shapes_strides_and_types() -> None:
    cache = tuning(1, {"bmm": 1.0}, session=None, source="/c/cache/44")
    other = replace(cache, strides=((9, 9, 9), (9, 9, 9)), inputs_key=inputs(1)[:-1] + "x]")
    assert only(compare(part(log(1, {"bmm": 1.0})), part(cache, other))).b.ms == 1.0
    bare = replace(log(1, {"bmm": 1.0}), strides=(), dtypes=())  # as torch 2.5 prints it
    assert only(compare(part(bare), part(cache))).b.ms == 1.0
    told = compare(part(bare), part(cache, other))
    assert told.common == () and len(told.only_b) == 2  # it may be either


def test_another_version_of_torch_writes_the_same_problem_in_other_keys() -> None:
    new = replace(
        tuning(1, {"bmm": 1.0}),
        inputs_key=inputs(1, ":benchmark_policy=eager"),
        precision="cuda:none,mkldnn:none",
    )
    assert only(compare(part(tuning(1, {"bmm": 1.0})), part(new))).verdict == "tied"
    high = replace(tuning(1, {"bmm": 1.0}), precision="high")
    assert compare(part(tuning(1, {"bmm": 1.0})), part(high)).common == ()


def test_tunings_on_another_system_are_not_mixed_with_those_of_this_one() -> None:
    here = tuning(1, {"bmm": 1.0}, session=None, source="/c/cache/aa")
    there = tuning(1, {"bmm": 9.0}, session=None, source="/c/cache/bb")
    found = compare(part(here, there), part(there))
    assert only(found).a.ms == 9.0
    assert [point.ms for point in found.only_a] == [1.0]


def test_choices_are_the_same_by_hash_or_configuration_and_never_by_their_number() -> None:
    one = Choice(name="triton_bmm_7", description="BLOCK_M=64, num_warps=4", ms=1.0)
    same = Choice(name="triton_bmm_99", description="BLOCK_M=64, num_warps=4", ms=1.0)
    other = Choice(name="triton_bmm_7", description="BLOCK_M=32, num_warps=4", ms=1.0)
    assert same_choice(one, same) and not same_choice(one, other)
    assert not same_choice(replace(one, hash="a-1"), replace(one, hash="a-2"))
    assert same_choice(Choice(name="cpp_X_0"), Choice(name="cpp_X_5"))
    assert not same_choice(Choice(hash="a-1"), Choice(hash=None))


# The times that are compared


def test_several_tunings_of_one_problem_count_as_their_median() -> None:
    times = (1.0, 1.3, 1.1)
    many_times = part(
        *(tuning(1, {"bmm": ms}, when=at, session=f"s{at}") for at, ms in enumerate(times))
    )
    pair = only(compare(many_times, part(tuning(1, {"bmm": 1.1}))))
    assert (pair.a.ms, pair.a.basis, len(pair.a.rows)) == (1.1, "median", 3)
    assert (pair.b.basis, pair.verdict) == ("single", "tied")


def test_the_choice_in_use_counts_not_the_fastest() -> None:
    pinned = replace(tuning(1, {"bmm": 1.0, "triton_a": 1.5}), selected="triton_a-0123456789abcdef")
    pair = only(compare(part(tuning(1, {"bmm": 1.0, "triton_a": 1.5})), part(pinned)))
    assert pair.b.choice.name == "triton_a" and pair.verdict == "slower"
    assert not pair.same_choice


def test_what_has_no_time_is_named_and_not_compared() -> None:
    found = compare(part(tuning(1, {"bmm": None})), part(tuning(1, {"bmm": 1.0})))
    assert found.common == () and [row.tuning.shapes for row in found.untimed] == [shapes(1)]
    zero = compare(part(tuning(1, {"bmm": 0.0})), part(tuning(1, {"bmm": -1.0})))
    assert zero.common == () and len(zero.untimed) == 1


def test_sorted_by_the_time_lost_in_all_calls() -> None:
    often = [replace(tuning(1, {"bmm": 1.3}), when=float(at)) for at in range(5)]
    reused = [replace(one, selected_by="cache", choices=()) for one in often[1:]]
    found = compare(
        part(tuning(1, {"bmm": 1.0}), tuning(2, {"bmm": 1.0})),
        part(often[0], *reused, tuning(2, {"bmm": 2.0})),
    )
    assert [(pair.b.tuning.shapes, pair.calls) for pair in found.common] == [
        (shapes(1), 5),
        (shapes(2), 1),
    ]
    assert found.common[0].lost_total_ms == pytest.approx(1.5)
    assert found.totals.b_ms - found.totals.a_ms == pytest.approx(2.5)


# Single numbers


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(1.005, "tied"), (0.99, "tied"), (1.08, "unclear"), (0.93, "unclear"), (1.2, "slower"),
     (0.8, "faster")],
)  # fmt: skip
def test_single_numbers_tell_only_what_is_outside_their_noise(ms: float, verdict: str) -> None:
    pair = only(compare(part(tuning(1, {"bmm": 1.0})), part(tuning(1, {"bmm": ms}))))
    assert pair.verdict == verdict
    assert pair.low < pair.ratio < pair.high


def test_times_of_few_digits_are_known_less_well() -> None:
    short = only(compare(part(log(1, {"bmm": 0.0003})), part(log(1, {"bmm": 0.0004}))))
    assert short.ratio == pytest.approx(4 / 3) and short.verdict == "unclear"
    assert only(compare(part(log(1, {"bmm": 0.3})), part(log(1, {"bmm": 0.4})))).verdict == "slower"


def test_a_tuning_whose_choices_all_became_slower_was_disturbed_or_not_who_knows() -> None:
    before = {"bmm": 1.0, "triton_a": 1.2, "triton_b": 1.4}
    after = {name: ms * 1.5 for name, ms in before.items()}
    pair = only(compare(part(tuning(1, before)), part(tuning(1, after))))
    assert pair.verdict == "unclear" and "too" in pair.reason
    one = {**before, "bmm": 1.15}
    assert only(compare(part(tuning(1, before)), part(tuning(1, one)))).verdict == "slower"
    swapped = {"bmm": 1.4, "triton_a": 1.2, "triton_b": 1.4}
    pair = only(compare(part(tuning(1, before)), part(tuning(1, swapped))))
    assert pair.verdict == "slower" and not pair.same_choice and pair.ratio == pytest.approx(1.2)


def test_a_slower_machine_is_named_and_no_kernel_is_blamed() -> None:
    found = compare(part(*many(sigma=0.01)), part(*many(1.25, 0.01, seed=2)))
    assert found.noise.shift == pytest.approx(1.25, rel=0.01)
    assert {pair.verdict for pair in found.common} == {"unclear"}
    assert regressions(found, 5) == () and "slower by 2" in found.notes[0]
    worse = many(1.25, 0.01, seed=2)
    worse[4] = tuning(5, {"bmm": 5.0 * 1.6, "triton_a": 5 * 1.3 * 1.7, "triton_b": 10.0})
    (named,) = regressions(compare(part(*many(sigma=0.01)), part(*worse)), 10)
    assert named.b.tuning.shapes == shapes(5)
    assert named.raw == pytest.approx(1.6, rel=0.03) and named.ratio == pytest.approx(
        1.28, rel=0.03
    )


def test_another_device_is_no_disturbance_of_the_machine() -> None:
    a = part(*many(), sessions=[Session("s", device="MI210", arch="gfx90a", torch="2.9")])
    b = part(*many(0.5), sessions=[Session("s", device="MI300X", arch="gfx942", torch="2.9")])
    found = compare(a, b)
    assert found.noise.shift == 1.0
    assert found.notes == (
        "other device: MI210 in A, MI300X in B",
        "other architecture: gfx90a in A, gfx942 in B",
    )


@pytest.mark.parametrize(("sigma", "loud"), [(0.01, False), (0.2, True)])
def test_the_band_is_as_wide_as_the_noise_of_this_very_comparison(sigma: float, loud: bool) -> None:
    alarms, bands = 0, []
    for seed in range(20):
        found = compare(
            part(*many(sigma=sigma, seed=seed)), part(*many(sigma=sigma, seed=-seed - 1))
        )
        alarms += bool(regressions(found, 10))
        bands.append(found.noise.band)
    assert alarms <= 1
    assert (min(bands) > 0.3) == loud and (max(bands) == DEFAULT_BAND) == (not loud)


def test_few_choices_make_no_band_and_no_shift() -> None:
    assert noise([[0.3, 0.3, 0.3]] * 2, same_device=True) == noise([], same_device=True)
    assert noise([[0.3] * 20], same_device=True).shift == 1.0  # one problem alone


# Sessions of one model, and what is printed


def test_two_sessions_of_one_cache_dir() -> None:
    model = Model()
    first, second = tuning(1, {"bmm": 1.0}, session="a"), tuning(1, {"bmm": 1.5}, session="b")
    model.apply([Seen("/a#1", first), Seen("/b#1", replace(second, when=2.0))])
    pair = only(compare(of_sessions("a", {"a"}, model), of_sessions("b", {"b"}, model)))
    assert pair.ratio == pytest.approx(1.5) and pair.calls == 1
    assert of_sessions("none", {"c"}, model).rows == ()


def test_an_export_of_pins_holds_the_times_of_its_tunings(tmp_path: Path) -> None:
    times = {"bmm-0123456789abcdef": 1.0, "triton_a-0123456789abcdef": 1.2, "ck-1": float("inf")}
    pin = SharedPin(
        "bmm",
        inputs(1),
        "highest",
        "triton_a-0123456789abcdef",
        "triton_a",
        Machine(),
        timings={"highest": times},
    )
    path = tmp_path / "pins.json"
    path.write_text(share_text(PinExport((pin,))))
    assert is_export(path) and not is_export(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    assert not is_export(tmp_path / "pipe")  # and nobody waits for what it never gives
    model = Model()
    model.apply(tunings_of_export(read_share(path), str(path)))
    now = tuning(1, {"bmm": 1.0, "triton_a": 1.8})
    pair = only(compare(whole("export", model), part(replace(now, selected=pin.hash))))
    assert (pair.a.ms, pair.b.ms, pair.verdict) == (1.2, 1.8, "slower")
    assert pair.same_choice and pair.a.choice.name == "triton_a"


def test_what_is_printed_is_strict_json_and_safe_for_terminal_and_pull_request() -> None:
    evil = Choice(name="x|y`<b>@team\x1b[31m", hash="x-00000000ff", ms=3.0)
    with_evil = replace(tuning(1, {}), choices=(evil, *choices({"bmm": 4.0})))
    without = replace(with_evil, choices=(*choices({"bmm": 1.0}), replace(evil, ms=5.0)))
    a = part(without, tuning(2, {"bmm": 1.0}), label="a|b`\x1b")
    b = part(with_evil, tuning(3, {"bmm": 2.0}), label="b")
    found = compare(a, b)
    for printed in (text(found), markdown(found)):
        assert "\x1b" not in printed and "slower" in printed and "only in A" in printed
    rows = [line for line in markdown(found).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {9} and len(rows) == 3
    assert rows[2].count("`") == 4
    told = json.loads(json.dumps(builtins_of(ComparisonJson.of(found)), allow_nan=False))
    assert told["common"][0]["verdict"] == "slower" and len(told["only_b"]) == 1
    assert told["common"][0]["b"]["choice"] == evil.name and told["common"][0]["alike"]
    assert "nothing in both" in text(compare(part(), part()))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
def test_real_logs_compared_with_themselves_and_each_other() -> None:
    from rocm_tui.actions.sources import load_model

    paths = [p for p in sorted(CORPUS.iterdir()) if p.suffix in (".log", ".json")]
    from backend.disk.layout import Layout

    parts = [whole(p.name, load_model(Layout(CORPUS / "none"), [str(p)])) for p in paths]
    parts = [each for each in parts if each.rows]
    assert len(parts) > 15
    for each in parts:
        itself = compare(each, each)
        assert {pair.verdict for pair in itself.common} <= {"tied"}, each.label
        assert len(itself.common) + len(itself.untimed) > 0
        assert not itself.only_a and not itself.only_b
    by_name = {each.label: each for each in parts}
    quiet = by_name["local_cpu2130_torchrun2_tee_default_prefix.log"]
    noisy = by_name["local_cpu2130_multi_noisy_timings.log"]
    disturbed = compare(quiet, noisy)
    assert len(disturbed.common) == 9 and regressions(disturbed, 10) == ()
    assert max(pair.raw for pair in disturbed.common) > 100  # a neighbour process, no kernel
    for one, two in pairwise(parts):
        json.dumps(builtins_of(ComparisonJson.of(compare(one, two))), allow_nan=False)

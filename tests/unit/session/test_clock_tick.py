"""Times that a clock could not tell apart are no lead: ticks, rounding, waits on a busy CPU."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui.actions.sources import load_model
from rocm_tui.compare.comparison import compare
from rocm_tui.render.detail import tuning_facts
from rocm_tui.render.pins import pin_warning
from rocm_tui.render.tunings import LIST, lead_text
from rocm_tui.report.job import report
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.stats import LONGEST_WAIT, blur, indistinct, tick_of, versus
from tests.support.compare_lab import log, part
from tests.support.places import CORPUS

US = 1.024e-3


def tuning(*times: float, name: str = "triton_mm") -> Tuning:
    """The first is ATen's; sorted as a log is."""
    choices = [Choice(name=f"{name}_{at}" if at else "mm", ms=ms) for at, ms in enumerate(times)]
    return Tuning("mm", choices=tuple(sorted(choices, key=lambda choice: choice.ms or 0)))


def rounded(*ticks: float) -> Tuning:
    return tuning(*(round(n * US, 4) for n in ticks))


@pytest.mark.parametrize(
    ("times", "tick"),
    [
        ((0.0236, 0.0246, 0.0256, 0.0266), US),
        ((0.0236, 0.0245, 0.0246, 0.0256), US),  # a real one, with a median between two ticks
        ((0.0215, 0.0205, 0.0205, 0.0205, 0.0205, 0.0205), US),
        ((0.0246, 0.0255, *(0.0256,) * 8), US),  # a real one: most choices share a time
        ((0.0205, 0.0215), 0.0),  # two times lie on some grid by chance
        ((24 * US, 25 * US), US),  # in full, not by chance
        ((0.023, 0.024, 0.026), 1e-3),
        ((0.0229, 0.0338, 0.0382, 0.0413, 0.0466), 0.0),  # an MI200, whose clock is finer
        ((0.3012, 0.3713, 0.4561), 0.0),
        ((0.0236,), 0.0),
        ((), 0.0),
    ],
)
def test_a_tick_is_seen_from_the_times(times: tuple[float, ...], tick: float) -> None:
    assert tick_of(times) == tick


def test_times_without_a_tick_seldom_look_as_if_they_had_one() -> None:
    draw = random.Random(3)
    for count in (2, 3, 4, 6, 10):
        seen = [
            tick_of([round(draw.uniform(0.005, 0.09), 4) for _ in range(count)])
            for _ in range(3000)
        ]
        assert sum(map(bool, seen)) <= 60, count  # two of a hundred


def test_one_tick_is_unclear_and_two_are_a_lead_wherever_it_is_shown() -> None:
    one = rounded(25, 24, 27, 28)
    assert stats.lead(one) == pytest.approx(0.041, abs=0.001)  # not a tie by the band
    assert stats.standing(one) == "unclear" and lead_text(one) == "unclear"
    best, aten = one.choices[0], one.choices[1]
    assert versus(one, best, aten) == versus(one, aten, best) == "unclear"
    assert pin_warning(one, aten) is None
    cells = [field.text(Row("k", "id", 1, one)) for field in LIST]
    assert cells[-3:-1] == ["unclear", "unclear"]
    assert "saved" not in dict(tuning_facts(Row("k", "id", 1, one)))
    two = rounded(26, 24, 27, 28)
    assert stats.standing(two) == "ahead" and pin_warning(two, two.choices[1])
    assert versus(two, two.choices[1], two.choices[0]) == "behind"
    assert "saved" in dict(tuning_facts(Row("k", "id", 1, two)))
    exact = tuning(0.02461, 0.02357, 0.02693)
    assert stats.standing(exact) == "ahead"  # the same times by a finer clock


def test_the_last_digit_of_a_row_is_no_lead() -> None:
    assert stats.standing(tuning(0.0019, 0.0018)) == "unclear"
    assert stats.standing(tuning(0.0020, 0.0018)) == "ahead"
    assert stats.standing(tuning(0.00194321, 0.00181234)) == "ahead"


def test_a_call_that_waited_on_a_busy_cpu_says_nothing_of_its_kernel() -> None:
    waits = tuning(15.9982, 10.0014, name="cpp_CppMicroGemmFP32Vec")
    assert blur(waits) == LONGEST_WAIT and stats.standing(waits) == "unclear"
    assert stats.standing(tuning(12.0012, 12.0014, name="cpp_X")) == "unclear"  # no tie either
    assert stats.standing(tuning(15.9982, 10.0014)) == "ahead"  # on a GPU
    assert stats.standing(tuning(15.9982, 10.2714, name="cpp_X")) == "ahead"
    assert stats.standing(tuning(80.001, 10.0014, name="cpp_X")) == "ahead"
    assert not indistinct(waits, 10.0, 100.0)


def test_the_report_and_a_comparison_say_the_same() -> None:
    times = {"bmm": 25 * US, "triton_a": 24 * US, "triton_b": 27 * US}
    (gain,) = report(part(log(1, times))).savings.gains
    assert gain.unclear and not gain.tied and report(part(log(1, times))).savings.saved_ms == 0
    for after, verdict in ((5, "unclear"), (6, "slower")):
        before = {"triton_a": 4 * US, "triton_b": 7 * US, "bmm": 9 * US}
        pair = compare(part(log(1, before)), part(log(1, {**before, "triton_a": after * US})))
        assert pair.common[0].verdict == verdict, pair.common[0].reason
        assert ("clock" in pair.common[0].reason) == (verdict == "unclear")


def test_odd_numbers_are_no_times() -> None:
    odd = tuning(float("inf"), -1.0, 0.0, 1e-300, 1e300)
    assert blur(odd) == 0.0 and tick_of([float("inf"), 1e300, 5e-324]) == 0.0
    assert blur(replace(odd, choices=())) == 0.0


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
def test_ticks_of_real_logs() -> None:
    from backend.disk.layout import Layout

    def ticks(name: str) -> list[float]:
        rows = load_model(Layout(CORPUS / "none"), [str(CORPUS / name)]).rows()
        return [tick_of([c.ms or 0.0 for c in stats.ranked(row.tuning)]) for row in rows]

    assert sum(map(bool, ticks("ci_ao_cuda29_long_mixed_session.log"))) >= 19
    assert set(ticks("amd_mi200_notebook_stream_1_stderr.log")) == {0.0}

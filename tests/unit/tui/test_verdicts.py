"""What the screen says of a tuning that was measured again: verdict, whiskers, cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from backend.model.choice import Choice, Output
from rocm_tui.render import choices as choice_lines
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.pins import pin_effect
from rocm_tui.render.plot import interval, scale_of, single
from rocm_tui.render.table import Line
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from tests.support.measured_rows import BEATEN, TIED, UNCLEAR, WON, row, told


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def lines_of(shown: Row, width: int = 120) -> list[Line]:
    slots = choice_lines.choice_slots(shown, width)
    return [choice_lines.choice_line(shown, at, slots) for at in range(3)]


@pytest.mark.parametrize(
    ("shown", "says", "style"),
    [
        (WON, "mm-aten is fastest by 3.0 % (2.6 % to 3.4 %)", "good"),
        (TIED, "Tie: triton_mm-aa as fast, 0.3 % apart when measured again", "strong"),
        (UNCLEAR, "Unclear: 40 rounds did not decide", "strong"),
        (BEATEN, "triton_mm-bb is 3.1 % faster than mm-aten, which is in use", "warn"),
    ],
)
def test_the_verdict_is_what_was_measured(shown: Row, says: str, style: str) -> None:
    line = detail_lines.verdict(shown.tuning)
    assert text_of(line).strip().startswith(says)
    assert line[0][1] == style
    assert ("good" in {name for _, name in line}) == (shown is WON)


def test_what_disturbed_it_is_a_warning() -> None:
    line = detail_lines.measured(BEATEN.tuning)
    assert line is not None
    assert (" · the clock fell by 9 % meanwhile", "warn") in line
    assert text_of(line).startswith(" Measured: 40 rounds in 12 s")
    assert detail_lines.measured(replace(WON.tuning, measured=None)) is None


@pytest.mark.parametrize(
    ("shown", "lead", "styles"),
    [(WON, "3.0 %", {""}), (TIED, "tie", {"dim"}), (BEATEN, "#3 wins", {"warn"})],
)
def test_the_table_tells_the_measured_lead(shown: Row, lead: str, styles: set[str]) -> None:
    cells = tuning_cells.cells(shown, 0.0)
    assert cells["lead"][0] == lead and {cells["lead"][1]} == styles
    assert cells["error"] == ("0.4", "dim")
    assert cells["gain"][1] != "good"  # the winner is ATen, or ATen beats it
    unmeasured = replace(shown, tuning=replace(shown.tuning, measured=None))
    assert tuning_cells.cells(unmeasured, 0.0)["error"][0] == ""


def test_each_choice_shows_whether_and_how_it_was_measured() -> None:
    best, rival, single_number = lines_of(WON)
    assert text_of(best).split()[1:4] == ["●", "2.000", "0.4"] and "fastest" in text_of(best)
    assert "├" in text_of(rival) and "+3.0 %" in text_of(rival) and "slower" in text_of(rival)
    assert "○" in text_of(single_number) and "+5.0 %" in text_of(single_number)
    assert not {"fastest", "slower", "tied"} & set(text_of(single_number).split())
    styles = [{name for _, name in line} for line in (best, rival, single_number)]
    assert ["good" in names for names in styles] == [True, False, False]


def test_a_tie_has_no_winner_and_a_beaten_winner_is_a_warning() -> None:
    assert all("good" not in {name for _, name in line} for line in lines_of(TIED))
    winner, _, best = lines_of(BEATEN)
    assert "warn" in {name for _, name in winner} and "slower" in text_of(winner)
    assert "good" in {name for _, name in best} and "fastest" in text_of(best)


def test_the_mark_stands_before_the_place_of_a_choice() -> None:
    slots = choice_lines.choice_slots(WON, 80)
    line = choice_lines.choice_line(WON, 1, slots, marked=frozenset({"triton_mm-aa"}))
    assert line[0] == (" ✓2", "accent")


@pytest.mark.parametrize("width", [10, 24])
def test_an_interval_crosses_the_line_of_the_best_only_where_it_holds_it(width: int) -> None:
    apart, near = told("a", 1.06, "slower", 0.01), told("b", 1.004, "tied", 0.02)
    best = told("c", 1.0, "tied")
    scale = scale_of((best, apart, near), width)
    assert (scale.low, scale.high) == (pytest.approx(0.984, abs=1e-3), 1.1)
    lines = [interval(scale, one) for one in (best, apart, near)]
    assert all(len(line) == width for line in (*lines, scale.title))
    assert lines[0].strip() == "●"
    assert lines[1][lines[0].index("●")] == "│" and lines[1].count("●") == 1
    assert lines[2][lines[0].index("●")] in "┼●"
    assert scale.title.split() == ["0", "+10", "%", "slower"][: 4 if width > 14 else 3]
    assert single(scale, 1.05).count("○") == 1 and "━" not in single(scale, 1.05)
    assert single(scale, 3.0).endswith("▸") and "○" not in single(scale, 3.0)


@given(
    st.lists(st.tuples(st.floats(0.5, 9.0), st.floats(0.0, 2.0)), min_size=1, max_size=6),
    st.integers(6, 40),
)
def test_whiskers_fill_their_cells_whatever_was_measured(
    found: list[tuple[float, float]], width: int
) -> None:
    choices = [told("a", ratio, "slower", error) for ratio, error in found]
    scale = scale_of(choices, width)
    for one in choices:
        assert cell_len(interval(scale, one)) == width
        assert cell_len(single(scale, one.ratio)) == width


def test_the_pane_says_hot_or_cold_and_trouble_before_how_the_device_was_doing() -> None:
    measured = BEATEN.tuning.measured
    assert measured is not None
    told = replace(
        measured, caches="cold", resolution_ms=1.6e-5, clock_mhz=1980.0, temperature_c=54.0
    )
    line = detail_lines.measured(replace(BEATEN.tuning, measured=told))
    assert line is not None
    facts = text_of(line).split(" · ")
    assert facts[:2] == [" Measured: 40 rounds in 12 s", "cold caches"]
    assert facts[2:5] == [
        "the clock fell by 9 % meanwhile",
        "timer resolution 0.016 µs",
        "1,980 MHz, 54 °C",
    ]


@pytest.mark.parametrize(
    ("shown", "offered"),
    [(WON, "mm-aten"), (TIED, "mm-aten"), (UNCLEAR, "mm-aten"), (BEATEN, "triton_mm-bb")],
)
def test_the_fastest_is_offered_to_pin_as_measured(shown: Row, offered: str) -> None:
    best = stats.fastest(shown.tuning)
    assert best is not None and best.hash == offered


def test_a_pin_says_first_what_it_does_and_how_well_that_is_known() -> None:
    aten, other, best = BEATEN.tuning.choices
    assert pin_effect(BEATEN, best) == [
        "Later compiles use triton_mm-bb: 2.000 ms instead of 2.062 ms with mm-aten, measured, hot."
    ]
    assert pin_effect(BEATEN, aten) == ["Later compiles use mm-aten already; the pin keeps it so."]
    assert pin_effect(BEATEN, other) == [
        "Later compiles use triton_mm-aa: ~2.050 ms instead of ~2.000 ms with mm-aten. "
        "Not both were measured: each time was taken once."
    ]
    for shown, doubt in ((TIED, "they are tied"), (UNCLEAR, "it is unclear which is faster")):
        (effect,) = pin_effect(shown, shown.tuning.choices[1])
        assert effect.endswith(f"instead of 2.000 ms with mm-aten, measured, hot; {doubt}.")
    single = replace(BEATEN, tuning=replace(BEATEN.tuning, measured=None))
    assert stats.fastest(single.tuning) == aten
    unknown = Choice(hash="mm-x")
    assert pin_effect(single, unknown) == [
        "Later compiles use mm-x instead of mm-aten; its time is not known."
    ]


def test_the_choices_say_which_give_the_same_bits() -> None:
    outputs = (Output("A", 10, 10, 64), Output("B", 10, 4, 4096, 768, 2.9))
    shown = row(
        *(
            replace(measured, output=output)
            for measured, output in zip(
                (told("mm-aten", 1.0, "faster"), told("triton_mm-aa", 1.03, "slower")),
                outputs,
                strict=True,
            )
        )
    )
    slots = choice_lines.choice_slots(shown, 100)
    assert "OUTPUT" in text_of(choice_lines.choice_heading(shown, slots))
    cells = dict(span for line in lines_of(shown, 100) for span in reversed(line) if span[0])
    assert {text.strip(): style for text, style in cells.items()}["B ✗ 768 ~"] == "bad"
    assert "OUTPUT" not in text_of(
        choice_lines.choice_heading(WON, choice_lines.choice_slots(WON, 100))
    )

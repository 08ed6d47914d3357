"""Numbers, foreign text, columns and bars, without a screen."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from backend.model.choice import Choice, sort_choices
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render import choices as choice_lines
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.plot import bar
from rocm_tui.render.table import GAP, Column, Slot, fit, folded
from rocm_tui.session import numbers as fmt
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import quantity


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.5696, "569.6 µs"),
        (0.001833, "1.833 µs"),
        (0.99999, "1000 µs"),
        (12.345, "12.35 ms"),
        (1500.0, "1.500 s"),
        (0.0, "0.0 µs"),
        (0.0041, "4.1 µs"),  # as a row tells it
        (0.0066 - 0.0018, "4.8 µs"),
        (0.00410001, "4.100 µs"),
        (0.0351, "35.1 µs"),
        (0.5696, "569.6 µs"),
        (float("inf"), fmt.NONE),
        (float("nan"), fmt.NONE),
        (None, fmt.NONE),
    ],
)
def test_duration(ms: float | None, text: str) -> None:
    assert fmt.duration(ms) == text


@pytest.mark.parametrize(
    ("number", "text", "narrow"),
    [
        (0, "0", "0"),
        (14_376, "14,376", "14,376"),
        (99_999, "99,999", "99,999"),
        (123_456, "123,456", "123k"),
        (999_500, "999,500", "1.00M"),
        (35_000_000, "35,000,000", "35.0M"),
        (4_000_000_000_000, "4,000,000,000,000", "4.00T"),
        (None, fmt.NONE, fmt.NONE),
    ],
)
def test_counts_have_commas(number: int | None, text: str, narrow: str) -> None:
    assert (fmt.count(number), fmt.narrow_count(number)) == (text, narrow)
    assert quantity(text) == (None if number is None else number)


@pytest.mark.parametrize(
    ("ms", "other", "factor", "over", "rate"),
    [
        (0.0041, 0.01506, "3.7×", "+270 %", "410 G"),  # two digits, as an AUTOTUNE row has them
        (0.0041, 8.0, "2000×", "2000×", "410 G"),
        (0.0041, 0.0042, "1.0×", "+2 %", "410 G"),
        (0.0351, 0.0702, "2.00×", "+100 %", "47.9 G"),
        (0.0001, 0.0002, "2×", "+100 %", "20 T"),
        (0.1234, 0.4512, "3.66×", "+266 %", "13.6 G"),
        (0.00410001, 0.0150512, "3.67×", "+267 %", "410 G"),  # in full, as a cache has them
        (12.5, 25.1, "2.01×", "+101 %", "134 M"),
    ],
)
def test_what_is_made_of_rounded_times_has_no_more_digits(
    ms: float, other: float, factor: str, over: str, rate: str
) -> None:
    error = fmt.rounding(ms, other)
    assert fmt.factor(other / ms, error) == factor
    assert fmt.signed(other / ms - 1, error).lstrip("+") == over.lstrip("+")
    assert fmt.flops(1.681e-3 / ms, fmt.rounding(ms)) == rate


@given(st.integers(1, 99_999), st.integers(1, 99_999))
def test_no_shown_digit_of_a_ratio_is_within_its_rounding(left: int, right: int) -> None:
    """Its last digit counts for no less than what the rows cut off, nor is it all cut off."""
    a, b = left / 1e4, right / 1e4
    text = fmt.factor(b / a, fmt.rounding(a, b)).removesuffix("×")
    digits = text.partition(".")[2]
    unit = 10.0 ** -len(digits) if digits else 10.0 ** (len(text) - len(text.rstrip("0")))
    error = b / a * (0.5e-4 / a + 0.5e-4 / b)
    assert unit >= error / 2 * (1 - 1e-9) or len(text.strip("0.")) <= 1
    assert abs(float(text) - b / a) <= max(unit, error)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 G"),
        (0.00205, "2.05 G"),
        (0.0000004, "400 k"),
        (0.9994, "999 G"),
        (0.9996, "1.00 T"),
        (290.4, "290 T"),
        (float("nan"), fmt.NONE),
    ],
)
def test_throughput_has_the_unit_that_fits(value: float, text: str) -> None:
    assert fmt.flops(value) == text
    assert fmt.throughput(value) == (text if text == fmt.NONE else f"{text}FLOP/s")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3482, "3.4 KiB"),
        (100 * 1024, "100 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_bytes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert fmt.size(count) == text


@pytest.mark.parametrize(
    ("value", "text", "running"),
    [
        (0.04, "0.0 s", "0 s"),
        (9.94, "9.9 s", "10 s"),
        (10.0, "10 s", "10 s"),
        (59.4, "59 s", "59 s"),
        (59.6, "1 min 0 s", "1 min 0 s"),
        (3599.4, "59 min 59 s", "59 min 59 s"),
        (3600.0, "1 h 0 min", "1 h 0 min"),
        (9900.0, "2 h 45 min", "2 h 45 min"),
    ],
)
def test_seconds_are_those_of_a_clock(value: float, text: str, running: str) -> None:
    assert (fmt.seconds(value), fmt.running(value)) == (text, running)


@pytest.mark.parametrize(
    ("value", "text", "signed"),
    [
        (0.131, "13.1 %", "+13.1 %"),
        (-0.004, "-0.4 %", "−0.4 %"),
        (0.9996, "100.0 %", "+100.0 %"),
        (1.0, "100 %", "+100 %"),
        (9.99, "999 %", "+999 %"),
        (10.0, "11×", "11×"),
        (float("inf"), fmt.NONE, fmt.NONE),
        (None, fmt.NONE, fmt.NONE),
    ],
)
def test_percent(value: float | None, text: str, signed: str) -> None:
    assert (fmt.percent(value), fmt.signed(value)) == (text, signed)


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("triton_mm_12", 0, ""),
        ("triton_mm_12", 1, "…"),
        ("triton_mm_12", 2, "t…"),
        ("triton_mm_12", 5, "tr…12"),
        ("größe größe", 1, "…"),
        ("BLOCK=64 w4", 7, "B64 w4"),
        ("BLOCK_M=128 R0_BLOCK=64 w8 s3", 16, "M128 R0=64 w8 s3"),
        ("BLOCK_M=128 R0_BLOCK=64 w8 s3", 12, "M128 R0=64…"),
    ],
)
def test_names_of_choices_are_cut(text: str, width: int, short: str) -> None:
    assert fmt.shorten(text, width) == short


def test_blanks_are_squeezed_before_text() -> None:
    columns = (Column("op", "OP", 8, 18), Column("shape", "SHAPE", 16, 34))
    wants = {"op": 13, "shape": 12}
    assert [slot.width for slot in fit(columns, wants, 60)] == [13, 16], "room for both"
    assert [slot.width for slot in fit(columns, wants, 27)] == [13, 12]
    assert [slot.width for slot in fit(columns, wants, 26)] == [12, 12]


@given(st.floats(min_value=0, allow_nan=False))
def test_numbers_never_raise_and_fit_their_columns(value: float) -> None:
    for show in (fmt.duration, fmt.factor, fmt.percent, fmt.throughput, fmt.seconds):
        assert show(value)
    if value < 1e6:
        assert len(fmt.duration(value)) <= 8


def test_age_changes_seldom() -> None:
    assert [fmt.age(0.0, now) for now in (0, 59, 60, 3599, 3600, 86400 * 3)] == [
        "now",
        "now",
        "1 min",
        "59 min",
        "1 h",
        "3 d",
    ]
    assert fmt.age(None, 5.0) == fmt.NONE
    assert fmt.age(60.0, 5.0) == "now"  # clocks of hosts differ a little
    assert fmt.age(86400.0, 5.0) == "future"


@given(st.text())
def test_plain_text_is_one_harmless_line(text: str) -> None:
    shown = plain(text)
    assert not any(
        ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown
    )
    shown.encode()


def test_plain_text_shows_what_it_disarmed() -> None:
    assert plain("a\x1b]52;c;x\x07b\nc") == "a␛]52;c;x␇b c"
    assert plain("[bold]x[/]") == "[bold]x[/]"


@given(st.text(max_size=60), st.integers(min_value=0, max_value=40))
@example(" 中中 中", 5)
def test_shorten_keeps_both_ends(text: str, width: int) -> None:
    short = fmt.shorten(text, width)
    assert cell_len(short) <= max(width, 0)
    if cell_len(text) > width > 4:
        assert short[0] == text[0] and "…" in short


def test_wide_letters_are_cut_with_a_sign() -> None:
    assert fmt.shorten("宽字符日志.log", 14) == "宽字符日志.log"
    assert fmt.shorten("宽字符日志文件名.log", 14) == "宽字符…名.log"


@given(
    st.text(alphabet="aé中👍 ", max_size=30), st.integers(min_value=1, max_value=20), st.booleans()
)
def test_a_cell_is_exactly_as_wide_as_its_slot(text: str, width: int, right: bool) -> None:
    slot = Slot(Column("k", "K", 1, 20, right=right), width)
    assert cell_len(slot.cell(text)) == width


@given(st.integers(min_value=40, max_value=250), st.integers(min_value=0, max_value=60))
def test_columns_of_the_table_fit(width: int, want: int) -> None:
    wants = {column.key: want for column in tuning_cells.COLUMNS}
    slots = fit(tuning_cells.COLUMNS, wants, width)
    keys = [slot.column.key for slot in slots]
    used = sum(slot.width for slot in slots) + GAP * (len(slots) - 1)
    assert used <= width or keys == ["op", "shape", "winner", "time"]
    assert {"op", "shape", "winner", "time"} <= set(keys)


def test_80_columns_keep_what_matters_and_220_show_all() -> None:
    wants = {column.key: 13 for column in tuning_cells.COLUMNS}
    wants |= {"op": 11, "winner": 30, "shape": 30}
    narrow = [slot.column.key for slot in fit(tuning_cells.COLUMNS, wants, 78)]
    assert narrow == ["op", "shape", "winner", "time", "gain", "lead", "pin"]
    wide = [slot.column.key for slot in fit(tuning_cells.COLUMNS, wants, 220)]
    assert wide == [column.key for column in tuning_cells.COLUMNS]


def test_bars() -> None:
    assert [bar(share, 4) for share in (0.0, 0.001, 0.5, 0.625, 1.0, 7.0)] == [
        "    ",
        "╸   ",
        "━━  ",
        "━━╸ ",
        "━━━━",
        "━━━━",
    ]


def row(*times: float | None, state: str = "done", failed: int = 0) -> Row:
    choices = [Choice(f"triton_mm_{n}", f"h{n}", ms) for n, ms in enumerate(times)]
    choices += [Choice(f"bad_{n}", f"b{n}", failed=True, reason="no room") for n in range(failed)]
    tuning = Tuning(
        "mm",
        shapes=((16, 64), (64, 32)),
        dtypes=("torch.float32",) * 2,
        choices=sort_choices(choices),
        state=state,  # type: ignore[arg-type]
        timed=sum(ms is not None for ms in times),
    )
    return Row("k", tuning.id, 1, tuning)


def text_of(line: tuple[tuple[str, str], ...]) -> str:
    return "".join(text for text, _ in line)


def test_a_tie_is_never_coloured_as_a_win() -> None:
    tie, clear = row(1.0, 1.01, 2.0), row(1.0, 1.5)
    slots = choice_lines.choice_slots(tie, 80)
    styles = {style for at in range(3) for _, style in choice_lines.choice_line(tie, at, slots)}
    assert "good" not in styles and "accent" not in styles
    assert text_of(detail_lines.verdict(tie.tuning)).startswith(
        " Tie: the best two are 1.0 % apart"
    )
    assert tuning_cells.cells(tie, 0.0)["lead"] == ("tie", "dim")
    slots = choice_lines.choice_slots(clear, 80)
    assert "good" not in {style for _, style in choice_lines.choice_line(clear, 0, slots)}
    assert tuning_cells.cells(clear, 0.0)["lead"] == ("~50.0 %", "dim")
    assert "ahead · by single times, not measured" in text_of(detail_lines.verdict(clear.tuning))


def test_one_choice_alone_has_won_nothing() -> None:
    alone = row(1.0)
    assert "Only one choice was timed" in text_of(detail_lines.verdict(alone.tuning))
    slots = choice_lines.choice_slots(alone, 80)
    assert "good" not in {style for _, style in choice_lines.choice_line(alone, 0, slots)}


def test_a_running_tuning_tells_its_progress_and_no_winner() -> None:
    running = row(1.0, 2.0, None, None, state="running", failed=1)
    cells = tuning_cells.cells(running, 0.0)
    assert cells["lead"] == ("2/5", "accent") and cells["gain"][0] == fmt.NONE
    assert "2 of 5 timed" in text_of(detail_lines.verdict(running.tuning))
    slots = choice_lines.choice_slots(running, 80)
    lines = [text_of(choice_lines.choice_line(running, at, slots)) for at in range(5)]
    assert "waiting" in lines[2] and "failed" in lines[4] and "no room" in lines[4]


def test_only_configuration_that_differs_is_a_column() -> None:
    choices = tuple(
        Choice(f"t{n}", f"h{n}", 1.0 + n, f"BLOCK_M={16 * n}, BLOCK_K=32, num_warps={n}")
        for n in range(1, 4)
    )
    one = Row("k", "i", 1, Tuning("mm", choices=choices))
    titles = [slot.column.title for slot in choice_lines.choice_slots(one, 120)]
    assert "BLOCK_M" in titles and "num_warps" in titles and "BLOCK_K" not in titles
    narrow = [slot.column.key for slot in choice_lines.choice_slots(one, 50)]
    assert {"bar", "ms", "name"} <= set(narrow)


def test_help_fits_80_columns() -> None:
    from rocm_tui.tui.screens.help import HelpText

    text = HelpText("Watch", {})
    text.heading(78)
    assert text.count() > 50
    lines = ["".join(part for part, _ in text.line(at, 78)) for at in range(text.count())]
    assert [line for line in lines if cell_len(line) > 78] == []


def test_numbers_of_a_lead_are_whole_and_a_pin_loses_words() -> None:
    columns = {column.key: column for column in tuning_cells.TUNINGS}
    lead, pin = columns["lead"], columns["pin"]
    assert Slot(lead, lead.least).cell("~−34.1 %") == "~−34.1 %"
    assert [Slot(pin, n).cell("● #2 ✓ 8\xa0min").rstrip() for n in (12, 9, 6, 4)] == [
        "● #2 ✓ 8\xa0min",
        "● #2 ✓",
        "● #2 ✓",
        "● #2",
    ]


def test_a_line_that_is_too_long_goes_on_below() -> None:
    line = ((" Suspect: ", "warn"), ("24.00 ms is a multiple of 4 ms, as of a call that waits", ""))
    assert folded(line, 80) == [line]
    below = folded(line, 30)
    assert ["".join(text for text, _ in part) for part in below] == [
        " Suspect: 24.00 ms is a",
        "   multiple of 4 ms, as of a",
        "   call that waits",
    ]
    assert below[0][0] == (" Suspect:", "warn") and below[1][1] == ("multiple", "")


def test_the_age_of_a_proof_gives_way_before_the_names_in_use_are_cut() -> None:
    columns = [c for c in tuning_cells.TUNINGS if c.key in ("winner", "pin")]
    wants = {"winner": 30, "pin": 12}
    assert [slot.width for slot in fit(columns, wants, 44)] == [30, 12]
    for width in (43, 40, 38):
        winner, pin = fit(columns, wants, width)
        assert winner.width == 30 and pin.cell("● #2 ✓ 8\xa0min").rstrip() == "● #2 ✓"

"""Numbers as a person reads them, at the values where their form changes."""

from __future__ import annotations

from math import inf, nan

import pytest

from rocm_tui.session import numbers

MIN, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"), (9.9994, "9.999"), (9.9995, "10.00"), (99.994, "99.99"), (99.995, "100.0"),
        (999.94, "999.9"), (999.95, "1000"), (1450.4, "1450"), (inf, "–"), (-inf, "–"), (nan, "–"),
    ],
)  # fmt: skip
def test_four_digits(value: float, text: str) -> None:
    assert numbers.significant(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"), (inf, "–"), (nan, "–"), (0.0, "0.0 µs"), (0.0041, "4.1 µs"),
        (0.00412, "4.120 µs"), (0.0999, "99.9 µs"), (0.1, "100.0 µs"), (0.5696, "569.6 µs"),
        (-0.0041, "4.1 µs"), (0.99996, "1000 µs"), (1.0, "1.000 ms"), (12.34, "12.34 ms"),
        (999.9, "999.9 ms"), (1000.0, "1.000 s"), (-1200.0, "1.200 s"),
    ],
)  # fmt: skip
def test_a_time_has_no_more_digits_than_its_source(ms: float | None, text: str) -> None:
    assert numbers.duration(ms) == text


@pytest.mark.parametrize(
    ("ms", "unit", "scale"),
    [(None, "ms", 1.0), (0.999, "µs", 1e3), (1.0, "ms", 1.0), (999.9, "ms", 1.0), (1e3, "s", 1e-3)],
)
def test_the_unit_of_a_time(ms: float | None, unit: str, scale: float) -> None:
    assert numbers.time_unit(ms) == (unit, scale)


@pytest.mark.parametrize(
    ("times", "error"),
    [((), 0.0), ((None, 0.0), 0.0), ((0.12345,), 0.0), ((0.0005,), 0.1), ((0.0005, 0.001), 0.15)],
)
def test_the_error_of_rounded_times(times: tuple[float | None, ...], error: float) -> None:
    assert numbers.rounding(*times) == pytest.approx(error)


@pytest.mark.parametrize(
    ("number", "text", "narrow"),
    [
        (None, "–", "–"), (0, "0", "0"), (14_376, "14,376", "14,376"),
        (99_999, "99,999", "99,999"), (100_000, "100,000", "100k"), (999_499, "999,499", "999k"),
        (999_500, "999,500", "1.00M"), (1_200_000, "1,200,000", "1.20M"),
        (9_994_000, "9,994,000", "9.99M"), (9_995_000, "9,995,000", "10.0M"),
        (99_950_000, "99,950,000", "100M"), (2 * 10**15, "2,000,000,000,000,000", "2000T"),
    ],
)  # fmt: skip
def test_a_number_of_things(number: int | None, text: str, narrow: str) -> None:
    assert (numbers.count(number), numbers.narrow_count(number)) == (text, narrow)


@pytest.mark.parametrize(
    ("value", "text", "going"),
    [
        (0.44, "0.4 s", "0 s"), (9.94, "9.9 s", "10 s"), (10.4, "10 s", "10 s"),
        (59.4, "59 s", "59 s"), (59.6, "1 min 0 s", "1 min 0 s"),
        (3599.4, "59 min 59 s", "59 min 59 s"), (3600.0, "1 h 0 min", "1 h 0 min"),
        (7500.0, "2 h 5 min", "2 h 5 min"), (200.0, "3 min 20 s", "3 min 20 s"),
        (inf, "–", "–"),
    ],
)  # fmt: skip
def test_seconds(value: float, text: str, going: str) -> None:
    assert (numbers.seconds(value), numbers.running(value)) == (text, going)


@pytest.mark.parametrize(
    ("value", "error", "ratio", "relative", "more"),
    [
        (None, 0.0, "–", "–", "–"),
        (inf, 0.0, "–", "–", "–"),
        (nan, 0.0, "–", "–", "–"),
        (0.0, 0.1, "0.00×", "0.0 %", "+0.0 %"),
        (0.131, 0.0, "0.13×", "13.1 %", "+13.1 %"),
        (0.131, 0.01, "0.13×", "13 %", "+13 %"),
        (0.131, 0.1, "0.13×", "10 %", "+10 %"),
        (-0.042, 0.0, "-0.04×", "-4.2 %", "−4.2 %"),
        (0.999, 0.0, "1.00×", "99.9 %", "+99.9 %"),
        (1.0, 0.0, "1.00×", "100 %", "+100 %"),
        (9.99, 0.0, "9.99×", "999 %", "+999 %"),
        (10.0, 0.0, "10.0×", "11×", "11×"),
        (99.96, 0.0, "100×", "101×", "101×"),
        (3.69, 0.01, "3.7×", "370 %", "+370 %"),
        (3.69, 0.1, "4×", "400 %", "+400 %"),
        (1450.0, 0.1, "1400×", "1500×", "1500×"),
        (3.69, 3.0, "4×", "400 %", "+400 %"),
        (3.69, inf, "3.69×", "369 %", "+369 %"),
    ],
)
def test_no_more_digits_than_are_certain(
    value: float | None, error: float, ratio: str, relative: str, more: str
) -> None:
    said = (numbers.factor(value, error), numbers.percent(value, error))
    assert (*said, numbers.signed(value, error)) == (ratio, relative, more)


@pytest.mark.parametrize(
    ("low", "high", "text", "signs"),
    [
        (1.039, 1.049, "3.9 to 4.9 %", "+3.9 % to +4.9 %"),
        (0.951, 0.961, "3.9 to 4.9 %", "−4.9 % to −3.9 %"),
        (1.0, 1.02, "+0.0 % to +2.0 %", "+0.0 % to +2.0 %"),
        (0.98, 1.0, "−2.0 % to +0.0 %", "−2.0 % to +0.0 %"),
        (1.2, inf, "not known", "not known"),
    ],
)
def test_intervals(low: float, high: float, text: str, signs: str) -> None:
    assert (numbers.between(low, high), numbers.signed_range(low, high)) == (text, signs)
    assert numbers.change(low, "slower").endswith(" % slower")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (nan, "–"), (0.0, "0.00 G"), (1.234, "1.23 T"), (0.00205, "2.05 G"),
        (0.000812, "812 M"), (0.00099951, "1.00 G"), (0.00099949, "999 M"), (5e-7, "500 k"),
        (5e-11, "0.05 k"), (999.4, "999 T"), (999.5, "1.00 P"), (5e6, "5000 P"),
    ],
)  # fmt: skip
def test_operations(value: float | None, text: str) -> None:
    assert numbers.flops(value) == text
    assert numbers.throughput(value) == (text if text == "–" else f"{text}FLOP/s")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3482, "3.4 KiB"), (102400, "100 KiB"),
        (2**20 - 1, "1024 KiB"), (2**20, "1.0 MiB"), (2**30, "1.0 GiB"), (300 * 2**30, "300.0 GiB"),
    ],
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert numbers.size(count) == text


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (-60.0, "future"), (-59.0, "now"), (59.0, "now"), (MIN, "1 min"), (HOUR - 1, "59 min"),
        (HOUR, "1 h"), (DAY - 1, "23 h"), (DAY, "1 d"), (400 * DAY, "400 d"), (1e12, "–"),
    ],
)  # fmt: skip
def test_ages(passed: float, text: str) -> None:
    assert numbers.age(2e12 - passed, 2e12) == text
    assert numbers.age(None, 2e12) == "–"


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abcdef", 6, "abcdef"), ("abcdef", 5, "ab…ef"), ("abcdef", 4, "ab…f"), ("abcdef", 2, "a…"),
        ("abcdef", 1, "…"), ("abcdef", 0, ""), ("äbcdef", 6, "äbcdef"), ("äbcdef", 4, "äb…f"),
        ("日本語", 6, "日本語"), ("日本語", 5, "日…語"), ("日本語", 4, "日…"), ("日本語", 1, "…"),
        ("日本語", 0, ""), ("BLOCK_M=128 w8 s3", 17, "BLOCK_M=128 w8 s3"),
        ("BLOCK_M=128 w8 s3", 16, "M128 w8 s3"), ("BLOCK_M=128 w8 s3", 10, "M128 w8 s3"),
        ("BLOCK_M=128 w8 s3", 9, "M128 w8…"), ("BLOCK_M=128 w8 s3", 8, "M128 w8…"),
        ("BLOCK_M=128 w8 s3", 7, "M128…"), ("BLOCK_M=128 w8 s3", 3, "M1…"),
        ("R0_BLOCK=64 XBLOCK=2 w8", 22, "R0=64 X2 w8"), ("BLOCK=64 w8", 9, "B64 w8"),
        ("GROUP_SIZE_M=8 BLOCK_SIZE_M=4 w8", 20, "GM8 M4 w8"), ("BLOCK_M=on w8", 12, "M=on w8"),
        ("BLOCK_M=1 M=2 w8", 15, "BLOCK_M=1 M=2…"), ("A=b hello w", 10, "A=b h…lo w"),
    ],
)  # fmt: skip
def test_names_of_choices_keep_both_ends_and_configs_their_values(
    text: str, width: int, short: str
) -> None:
    assert numbers.shorten(text, width) == short


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~1.2 ms", 1.2e-3), ("3 min 20 s", 200.0), ("12 %", 0.12), ("now", 0.0), ("−4.9", -4.9),
        ("-4", -4.0), ("14,376", 14376.0), ("1.20M", 1.2e6), ("3.4 KiB", 3481.6), ("1.13×", 1.13),
        (" 5 d ", 432000.0), ("", None), (" ", None), ("12 parsecs", None), ("abc", None),
        ("1 s x", None), ("3 min 2", 182.0),
    ],
)  # fmt: skip
def test_what_is_read_is_compared_as_it_is_read(text: str, value: float | None) -> None:
    assert numbers.quantity(text) == (None if value is None else pytest.approx(value))


def test_a_mark_stands_before_a_number_and_before_nothing_else() -> None:
    assert [numbers.once(text) for text in ("1 ms", "–", "")] == ["~1 ms", "–", ""]
    assert numbers.once("1 ms", "?") == "?1 ms"

"""A program's output as lines: however it is cut, whatever it holds, however much it is."""

from __future__ import annotations

import random

from rocm_tui.launch.output import MOST_CHARACTERS, OutputLines

TEXT = (
    "one\r\n"
    "\r 10%|#   |\r 50%|##  |\r100%|####|\n"
    "\x1b[31mré\x1b[0m\x1b]52;c;ZXZpbA==\x07d\x1b[2J\n"
    "a\rbegun\r"
).encode()


def test_lines_do_not_depend_on_how_they_are_cut() -> None:
    for seed in range(30):
        rng, lines, at = random.Random(seed), OutputLines(), 0
        while at < len(TEXT):
            step = rng.randint(1, 9)
            lines.feed(TEXT[at : at + step])
            at += step
        assert lines.since(0) == (0, ["one", "100%|####|", "réd"])
        assert (lines.begun, lines.last(2)) == ("begun", ["réd", "begun"])


def test_memory_is_bounded_and_numbers_stay() -> None:
    lines = OutputLines(most=100)
    for n in range(5000):
        lines.feed(b"%d\n" % n)
    start, kept = lines.since(0)
    assert 100 <= len(kept) <= 200 and lines.end == 5000
    assert kept == [str(n) for n in range(start, 5000)]
    assert lines.since(4999) == (4999, ["4999"])
    for _ in range(100):
        lines.feed(b"x" * MOST_CHARACTERS)
    assert len(lines.begun) <= MOST_CHARACTERS and len(lines.since(0)[1]) <= 200
    bar = OutputLines()
    for n in range(2000):
        bar.feed(b"\rstep %d" % n)
    assert (bar.end, bar.begun) == (0, "step 1999")

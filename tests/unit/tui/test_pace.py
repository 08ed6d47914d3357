"""When the screens are brought up to date while what was there at the start is read."""

from __future__ import annotations

from rocm_tui.tui.app import Pace


def test_the_first_rows_wait_a_moment_for_all_that_was_there() -> None:
    pace = Pace()
    assert pace.wait(50.0, rows=False, settled=False) <= 0
    held = pace.wait(100.0, rows=True, settled=False)
    assert 0 < held <= 0.1
    assert pace.wait(100.0 + held, rows=True, settled=False) <= 0, "a long log shows a part"


def test_all_that_was_there_is_shown_at_once() -> None:
    pace = Pace()
    assert pace.wait(100.0, rows=True, settled=False) > 0
    assert pace.wait(100.01, rows=True, settled=True) <= 0
    pace = Pace()
    assert pace.wait(100.0, rows=True, settled=True) <= 0, "nothing is held that is whole"

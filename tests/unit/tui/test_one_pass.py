"""A key is painted once: the table's cursor and the details, in one pass of the compositor."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.screen import Screen

from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache


def dirty(screen: Screen[object]) -> set[str]:
    """Which of the two are to be painted."""
    return {widget.id or "" for widget in screen._dirty_widgets} & {"tunings", "detail"}


async def test_the_details_go_with_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path, *range(16, 30))
    async with running(tmp_path, size=(120, 40)) as (app, pilot):
        panes = await panes_of(app, pilot, 14)
        table, detail = panes.table, panes.detail
        await pilot.pause()
        await until(pilot, lambda: not dirty(app.screen))
        passes: list[set[str]] = []
        refresh = Screen._compositor_refresh

        def counted(screen: Screen[object]) -> None:
            if changed := dirty(screen):
                passes.append(changed)
            refresh(screen)

        monkeypatch.setattr(Screen, "_compositor_refresh", counted)
        for count, step in enumerate((1, 2, 3, -1, 20), 1):
            before = table.current
            table.action_move(step)
            assert table.current is not before
            assert detail.row is table.current, "at once, not with a message that comes later"
            await until(pilot, lambda: len(passes) >= count)  # noqa: B023
            row = table.current
            assert row is not None and f"{row.tuning.shapes[0][0]}×" in screen_text(detail)
        assert passes == [{"tunings", "detail"}] * 5
        await pilot.press("home")
        await until(pilot, lambda: detail.row is table.rows[0])

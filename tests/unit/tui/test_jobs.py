"""The screen of jobs: how many run and wait, in which order, and what the one under the cursor
says."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from rocm_tui.jobs.queue import Order, QueueRun
from rocm_tui.tui.screens.jobs import JobsScreen
from tests.support.screen_lab import running, screen_text, until


def order(title: str, end: threading.Event, lane: str = "0") -> Order:
    """A job that needs no worker and lasts until `end`."""

    def work(run: QueueRun) -> str:
        assert end.wait(90.0)
        return f"{title} is done"

    return Order("measure", title, lane, work, command=f"rocm-tui measure {title}")


async def test_running_and_waiting_jobs_are_counted_in_the_title(tmp_path: Path) -> None:
    ends = [threading.Event() for _ in range(3)]
    async with running(tmp_path, size=(120, 30)) as (app, pilot):
        try:
            await pilot.press("4")
            await until(pilot, lambda: isinstance(app.screen, JobsScreen))

            async def title_is(facts: str) -> None:
                bar = app.screen.query_one("#title")
                await until(
                    pilot, lambda: screen_text(bar).rpartition("Report")[2].strip() == facts
                )

            await title_is("0 running")
            for title, end, lane in zip(("aaa", "bbb", "ccc"), ends, "001", strict=True):
                app.jobs.submit(order(title, end, lane))
            await title_is("2 running · 1 queued")
            ends[0].set()
            await title_is("2 running")
            ends[2].set()
            await title_is("1 running")
            await until(pilot, lambda: "ccc is done" in screen_text(app.screen))
            ends[1].set()
            await title_is("0 running")
            assert "$ rocm-tui measure ccc" in screen_text(app.screen), "the newest is on top"
        finally:
            for end in ends:
                end.set()
            await asyncio.to_thread(app.jobs.stop)

"""What the keys of Watch do with the tuning under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_tui.tui.screens.base import BaseScreen

if TYPE_CHECKING:  # types only: this screen stands before what they need is loaded
    from rocm_tui.jobs.queue import Job
    from rocm_tui.session.model import Row
    from rocm_tui.tui.widgets.panes import Panes


class TuningActions(BaseScreen):
    """A screen with `panes`, once there is a tuning; each action does nothing without one."""

    panes: Panes | None = None

    @property
    def row(self) -> Row | None:
        """The tuning under the cursor."""
        return self.panes.table.current if self.panes else None

    @property
    def job(self) -> Job | None:
        """The job about the tuning under the cursor."""
        row = self.row
        if row is None or not self.program.unfinished:
            return None
        return self.program.jobs.about(row.tuning, {*row.ids})

    def action_pin(self) -> None:
        row = self.row
        choice = self.panes.chosen if self.panes else None
        if row is not None and choice is not None:
            self.program.ask.pin(row, choice)

    def action_unpin(self) -> None:
        row = self.row
        if row is not None and row.pin is not None:
            self.program.ask.unpin(row.pin)

    def action_verify(self) -> None:
        row = self.row
        if row is not None and row.pin is not None:
            self.program.ask.verify(row.pin)

    def action_undo(self) -> None:
        self.program.ask.undo()

    def action_mark(self) -> None:
        if self.panes is not None:
            self.panes.detail.mark_current()

    def action_compare(self) -> None:
        """The marked choices of the tuning under the cursor, or those near the best."""
        if self.row is not None and self.panes is not None:
            self.program.compare(self.row, self.panes.detail.marked)

    def action_history(self) -> None:
        """The problem of the tuning under the cursor, over the days."""
        if self.row is not None:
            self.program.show_history(self.row)

    def action_read(self) -> None:
        choice = self.panes.chosen if self.panes else None
        if self.row is not None and choice is not None:
            self.program.read(self.row, choice)

    def action_tune(self) -> None:
        if self.row is not None:
            self.program.ask.tune(self.row)

    def tune_missed(self) -> None:
        """Without a tuning: what the one log that is watched says that tables lacked."""
        missed = self.program.missed
        if len(missed) == 1:
            self.program.ask.tune_missed(missed[0])
        else:
            self.program.warn("Several logs missed products: S lists them, t tunes those of one.")

    def action_measure(self) -> None:
        """The marked choices of the tuning under the cursor, or those near the best."""
        if self.row is not None and self.panes is not None:
            self.program.ask.measure(self.row, self.panes.detail.marked)

    def action_measure_suspects(self) -> None:
        """All that is watched, whatever the filter hides."""
        self.program.ask.measure_suspects(self.program.feed.model.rows())

    def action_trial(self) -> None:
        """The marked choices of the tuning under the cursor, in the graph that contains it."""
        if self.row is not None and self.panes is not None:
            self.program.ask.trial(self.row, self.panes.detail.marked)

    def action_cancel(self) -> None:
        """End the job about the tuning under the cursor."""
        job = self.job
        if job is not None:
            self.program.jobs.cancel(job.id)

    def action_copy(self) -> None:
        row = self.row
        if row is None or self.panes is None:
            return
        choice = self.panes.chosen
        if self.panes.inside and choice is not None:
            self.program.copy(choice.typed, f"the choice {choice.label}")
        else:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")

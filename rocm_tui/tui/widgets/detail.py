"""The tuning under the cursor: verdict, costs, pin, and every choice with its bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingType

from backend.model.choice import Choice
from rocm_tui.harmless import plain
from rocm_tui.render import choices as choice_lines
from rocm_tui.render import detail as detail_lines
from rocm_tui.render.choices import Footprint
from rocm_tui.render.shares import share_line
from rocm_tui.render.table import Line, Slot, filled, folded, whole
from rocm_tui.render.tuned_tables import beside_lines
from rocm_tui.session.model import Row
from rocm_tui.tui.watch_keys import bindings
from rocm_tui.tui.widgets.line_view import LineView

_LEAST = 4
"""Lines that the choices keep; what is said above them gives way."""


class Detail(LineView):
    """A list of choices below a short report. The cursor stands on a choice.

    `marked` holds the names of the choices that a person marked, to compare them.
    """

    BINDING_GROUP_TITLE = "Choices"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trial")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.row: Row | None = None
        self.marked: frozenset[str] = frozenset()
        self._footprints: Mapping[str, Footprint] = choice_lines.NOTHING
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self._moved = False

    @property
    def current(self) -> Choice | None:
        """The choice under the cursor."""
        if self.row is None or self.cursor >= len(self.row.tuning.choices):
            return None
        return self.row.tuning.choices[self.cursor]

    def show(self, row: Row | None) -> None:
        """Show this tuning. While it is the same, a cursor that was moved stays on its choice,
        and one that was not on the fastest."""
        before, current = self.row, self.current
        self.row = row
        if row is None or before is None or not _same(before, row):
            self.cursor = self.top = 0
            self._moved = False
            self._footprints = choice_lines.NOTHING
            self.marked = frozenset()
        elif self._moved and current is not None and current.hash is not None:
            hashes = [choice.hash for choice in row.tuning.choices]
            if current.hash in hashes:
                self.cursor = hashes.index(current.hash)
        self.sync()

    def show_footprints(self, footprints: Mapping[str, Footprint]) -> None:
        """Say what the kernels of this tuning take of their GPU, by choice hash."""
        self._footprints = footprints
        self.sync()

    def mark(self, names: frozenset[str]) -> None:
        """Let these choices be the marked ones."""
        self.marked = names
        self.sync()

    def mark_current(self) -> None:
        """Mark the choice under the cursor, or take its mark away, and go to the next one."""
        if self.current is not None:
            self.mark(self.marked ^ {choice_lines.name_of(self.current)})
            self.move_cursor(self.cursor + 1)

    def move_cursor(self, index: int) -> None:
        self._moved = True
        super().move_cursor(index)

    def count(self) -> int:
        return len(self.row.tuning.choices) if self.row else 0

    def _layout(self, width: int) -> tuple[Slot, ...]:
        assert self.row is not None
        tuning = self.row.tuning
        state = (width, self.row.key, tuning.choices, tuning.measured, self._footprints)
        if state != self._fitted:
            self._fitted = state
            self._slots = choice_lines.choice_slots(self.row, width, self._footprints)
        return self._slots

    def heading(self, width: int) -> list[Line]:
        row = self.row
        if row is None:
            return []
        head = choice_lines.choice_heading(row, self._layout(width - 2))
        room = self.size.height - 2 - min(_LEAST, self.count())
        said = [whole(line, width) for line in self._said(row, max(1, room))]
        below = [piece for line in said for piece in folded(line, width)]
        return [
            filled(detail_lines.title(row), width),
            *(below if len(below) <= room else said),
            filled(head, width),
        ]

    def _said(self, row: Row, room: int) -> list[Line]:
        """What stands above the choices; the least important gives way where room is short."""
        known = self._footprints
        takes = detail_lines.takes(self.current, known) if known else None
        lines = [
            (0, detail_lines.row_verdict(row)),
            *((0.5, line) for line in detail_lines.device_lines(row)),
            (1, detail_lines.suspect(row)),
            (1, detail_lines.measured(row.tuning)),
            (3, detail_lines.cost(row.tuning)),
            (2, detail_lines.pin_line(row)),
            *((2.6, line) for line in beside_lines(row)),
            (2.5, share_line(row.share)),
            (2.2, self._tried(row)),
            (4, self._about_choice()),
            (5, takes),
        ]
        kept = [(rank, line) for rank, line in lines if line is not None]
        while len(kept) > room:
            kept.remove(max(kept, key=lambda ranked: ranked[0]))
        return [line for _, line in kept]

    def _tried(self, row: Row) -> Line | None:
        if row.share is None or row.share.tried is None:
            return None
        from rocm_tui.render.graphs import trial_line

        return trial_line(row.share.tried)

    def _about_choice(self) -> Line:
        """The choice under the cursor, in full where the list cuts it; blank without focus. Config
        of a table of another tuner, which goes by its blocks."""
        choice = self.current
        if choice is not None and choice.description and self.row and self.row.tuning.entry:
            return ((f" {plain(choice.description)}", "dim"),)
        if choice is None or not self.has_focus:
            return ()
        facts = [choice.label] + ([choice.hash] if choice.hash and choice.name else [])
        if choice.failed:
            facts.insert(0, f"failed: {choice.reason or 'no reason known'}")
        return ((" " + plain(" · ".join(facts)), "dim"),)

    def line(self, index: int, width: int) -> Line:
        assert self.row is not None
        slots = self._layout(width)
        return choice_lines.choice_line(self.row, index, slots, self._footprints, self.marked)


def _same(before: Row, after: Row) -> bool:
    """Whether two rows are the same tuning; the key changes while a source is written anew."""
    if before.tuning.device_index != after.tuning.device_index:
        return False
    ids = {*before.ids} & {*after.ids}
    return before.key == after.key or (bool(ids) and before.occurrence == after.occurrence)

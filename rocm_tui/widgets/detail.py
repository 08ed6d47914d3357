"""The tuning under the cursor: verdict, costs, pin, and every choice with its bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.records import Choice
from rocm_tui.format import plain
from rocm_tui.session.model import Row
from rocm_tui.widgets import detail_lines
from rocm_tui.widgets.columns import Slot
from rocm_tui.widgets.line_view import Line, LineView

if TYPE_CHECKING:
    from rocm_tui.session.resource_text import Told


class Detail(LineView):
    """A list of choices below a short report. The cursor stands on a choice."""

    BINDING_GROUP_TITLE = "Choices"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.row: Row | None = None
        self._told: Mapping[str, Told] = detail_lines.NOTHING
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
            self._told = detail_lines.NOTHING
        elif self._moved and current is not None and current.hash is not None:
            hashes = [choice.hash for choice in row.tuning.choices]
            if current.hash in hashes:
                self.cursor = hashes.index(current.hash)
        self.sync()

    def tell(self, told: Mapping[str, Told]) -> None:
        """Say what the kernels of this tuning take of their GPU, by choice hash."""
        self._told = told
        self.sync()

    def move_cursor(self, index: int) -> None:
        self._moved = True
        super().move_cursor(index)

    def count(self) -> int:
        return len(self.row.tuning.choices) if self.row else 0

    def _layout(self, width: int) -> tuple[Slot, ...]:
        assert self.row is not None
        state = (width, self.row.key, self.row.tuning.choices, self._told)
        if state != self._fitted:
            self._fitted = state
            self._slots = detail_lines.choice_slots(self.row, width, self._told)
        return self._slots

    def heading(self, width: int) -> list[Line]:
        row = self.row
        if row is None:
            return []
        low = self.size.height < 9
        pin = detail_lines.pin_line(row)
        lines = [
            detail_lines.filled(detail_lines.title(row), width),
            detail_lines.verdict(row.tuning),
        ]
        lines += [] if low and pin else [detail_lines.cost(row.tuning)]
        lines += [pin] if pin else []
        lines += [] if low else [self._about_choice()]
        if self._told and not low:
            lines.append(detail_lines.takes(self.current, self._told))
        head = detail_lines.choice_heading(row, self._layout(width - 2))
        return [*lines, detail_lines.filled(head, width)]

    def _about_choice(self) -> Line:
        """The choice under the cursor, in full where the list cuts it; blank without focus."""
        choice = self.current
        if choice is None or not self.has_focus:
            return ()
        facts = [choice.label] + ([choice.hash] if choice.hash and choice.name else [])
        if choice.failed:
            facts.insert(0, f"failed: {choice.reason or 'no reason known'}")
        return ((" " + plain(" · ".join(facts)), "dim"),)

    def line(self, index: int, width: int) -> Line:
        assert self.row is not None
        return detail_lines.choice_line(self.row, index, self._layout(width), self._told)


def _same(before: Row, after: Row) -> bool:
    """Whether two rows are the same tuning; the key changes while a source is written anew."""
    aliases = before.aliases & after.aliases
    return before.key == after.key or (bool(aliases) and before.occurrence == after.occurrence)

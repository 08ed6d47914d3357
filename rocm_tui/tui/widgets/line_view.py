"""A scrolling list of lines that writes to the terminal only the cells that changed.

Textual repaints whole regions. Over SSH the bytes count, so this widget remembers what it last
painted, compares, and refreshes the narrowest region of each line that differs. It scrolls
without Textual's scroll bars: a changed virtual size would lay out and repaint the whole screen.

Textual's `DataTable` keeps a row object and a cell for everything it lists. 10,000 rows of nine
columns take 1.2 s and 19 MB, 50,000 take 6 s and 79 MB, and a new first row means a sort of all
(75 ms). A line here is made only while it is in view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from rocm_tui.tui import themes as palette
from rocm_tui.tui.keys import key

if TYPE_CHECKING:  # types only: the first screen is made of lists
    from rocm_tui.render.table import Line, Span

_WHEEL = 3


class LineView(Widget, can_focus=True):
    """Fixed heading lines, then lines with a cursor. Subclasses provide the lines; see `sync`."""

    ALLOW_SELECT = False
    all_painted: ClassVar[int] = 0
    GROUND: ClassVar[str] = ""
    """The style behind text that has none of its own, or no background."""
    DEFAULT_CSS = "LineView { width: 1fr; height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("down,j", "move(1)", "list.down",
            "one line down; a click goes to a line, the wheel scrolls"),
        key("up,k", "move(-1)", "list.up", "one line up"),
        key("home,g", "move_to(0)", "list.first", "first (newest) line"),
        key("end,G", "move_to(-1)", "list.last", "last line"),
        key("ctrl+d,pagedown", "page(1)", "list.page_down", "half a page down"),
        key("ctrl+u,pageup", "page(-1)", "list.page_up", "half a page up"),
        key("enter", "choose", "list.choose",
            "to the choices, to pin one; from the report to Watch"),
    ]  # fmt: skip

    class CursorMoved(Message):
        """The cursor has moved to another line."""

        def __init__(self, view: LineView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LineView:
            return self.view

    class Chosen(CursorMoved):
        """Enter was pressed on the line under the cursor, or it was double-clicked."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """`painted` counts the cells that `sync` has repainted; `all_painted` those of all
        views."""
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self.top = 0
        self._in_view = True
        self.painted = 0
        self._shown: dict[int, Line] = {}
        self._shown_at = Size(0, 0)
        self._head: list[Line] = []

    # What a subclass provides.

    def count(self) -> int:
        """Return the number of lines below the heading."""
        return 0

    def line(self, index: int, width: int) -> Line:
        """Return line `index`, of any width; it is cut or filled to the widget's width."""
        raise NotImplementedError

    def heading(self, width: int) -> list[Line]:
        """Return lines that do not scroll; at least one line is left for the others."""
        return []

    def empty(self, width: int) -> list[Line]:
        """Return the lines to show when there are none."""
        return []

    # Painting.

    @property
    def room(self) -> int:
        """The number of lines visible below the heading."""
        return max(1, self.size.height - len(self._head))

    def sync(self) -> None:
        """Update the terminal after any change, only in the cells that differ."""
        if regions := self._changed():
            self.refresh(*regions)  # once: its overhead costs more than the regions

    def _changed(self) -> list[Region]:
        """Compute what to show now; return where it differs from what was shown."""
        before, self._shown_at = self._shown_at, self.size
        width, height = self.size
        if not width or not height:
            return []
        self._head = self.heading(width)[:height]
        self._clamp()
        if self._in_view and before != self.size:  # the cursor stays visible after a resize
            self._reveal()
        self._in_view = self.top <= self.cursor < self.top + self.room
        regions = []
        for y, new in enumerate(self._compute(width, height)):
            old = self._shown.get(y)
            if old != new:
                self._shown[y] = new
                start, end = (0, width) if old is None else _differing(old, new, width)
                self.painted += end - start
                LineView.all_painted += end - start
                regions.append(Region(start, y, end - start, 1))
        return regions

    def _compute(self, width: int, height: int) -> list[Line]:
        count, above = self.count(), self._head
        if not count:
            above = [*above, *self.empty(width)]
        lines = [_fit(line, width) for line in above]
        inner = width - 1
        thumb = self._thumb(count)
        for y in range(len(lines), height):
            index = self.top + y - len(self._head)
            if not count or index >= count:
                lines.append(())
                continue
            at = index in self.cursor_lines
            mark: Span = ("▌" if self.has_focus else "▏", "accent") if at else (" ", "")
            rail: Span = ("┃" if y - len(self._head) in thumb else " ", "rail")
            line = _fit((mark, *self.line(index, inner - 1)), inner)
            lines.append((*line, rail, ("", "cursor" if at else "")))
        return lines[:height]

    def _thumb(self, count: int) -> range:
        room = self.room
        if count <= room:
            return range(0)
        size = max(1, room * room // count)
        start = (room - size) * self.top // (count - room)
        return range(start, start + size)

    def render_line(self, y: int) -> Strip:
        """Return line `y`. The first paint comes before the event that reports the size."""
        if not self._shown:
            self._changed()
        line, styles = self._shown.get(y, ()), palette.styles(self.app)
        on_cursor = bool(line) and line[-1] == ("", "cursor")
        base = styles[self.GROUND]
        if on_cursor:
            base += styles["cursor" if self.has_focus else "cursor-blurred"]
        segments: list[Segment] = []
        for text, name in line:
            style = palette.laid(base, styles[name], styles["cursor"]) if name else base
            last = segments[-1] if segments else None
            if last and last.style and _same_to_the_eye(text, style, last.style):
                segments[-1] = Segment(last.text + text, last.style)
            elif text:
                segments.append(Segment(text, style))
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def repaint(self) -> None:
        """Forget what was painted: the size, the theme or the focus changed."""
        self._shown.clear()
        self.sync()
        self.refresh()

    def on_resize(self) -> None:
        if self._shown_at != self.size:
            self.repaint()

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        if self.is_mounted:
            self.repaint_cursor()

    def repaint_cursor(self) -> None:
        self.sync()
        lines = self.cursor_lines
        y = len(self._head) + lines.start - self.top
        self.refresh(Region(0, y, self.size.width, len(lines)))

    # The cursor.

    @property
    def cursor_lines(self) -> range:
        """The range of lines of the row under the cursor, of which `cursor` is the first."""
        return range(self.cursor, self.cursor + 1)

    def _clamp(self) -> None:
        count, room = self.count(), self.room
        self.cursor = max(0, min(self.cursor, count - 1))
        self.top = max(0, min(self.top, count - room))

    def _reveal(self) -> None:
        self.top = max(self.cursor_lines.stop - self.room, min(self.top, self.cursor))

    def move_cursor(self, index: int) -> None:
        """Put the cursor on line `index`, or the nearest existing one, and scroll to it."""
        before = self.cursor
        self.cursor = index
        self._clamp()
        self._reveal()
        self.sync()
        if self.cursor != before:
            self.cursor_moved()

    def cursor_moved(self) -> None:
        """Post the message."""
        self.post_message(self.CursorMoved(self))

    def action_move(self, by: int) -> None:
        self.move_cursor(self.cursor + by)

    def action_move_to(self, index: int) -> None:
        self.move_cursor(index if index >= 0 else self.count() - 1)

    def action_page(self, direction: int) -> None:
        self.move_cursor(self.cursor + direction * max(1, self.room // 2))

    def action_choose(self) -> None:
        if not self.count():
            raise SkipAction  # the screen may have a notice about it
        self.post_message(self.Chosen(self))

    def choose_heading(self, x: int) -> None:
        """React to a click in this cell of the heading's last line."""

    def on_click(self, event: events.Click) -> None:
        if event.y == len(self._head) - 1:
            self.choose_heading(event.x)
        index = self.top + event.y - len(self._head)
        if event.y >= len(self._head) and index < self.count():
            self.move_cursor(index)
            if event.chain == 2:
                self.action_choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.top += _WHEEL
        self.sync()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.top -= _WHEEL
        self.sync()


def _same_to_the_eye(text: str, style: Style, last: Style) -> bool:
    """Return whether `text` may continue in the style before it: a change of colour costs 20
    bytes."""
    return style == last or (text.isspace() and style.bgcolor == last.bgcolor)


def _fit(line: Line, width: int) -> Line:
    """Cut or fill a line to exactly `width` cells; a line of which text is cut ends with a sign."""
    fitted: list[Span] = []
    left = width
    for at, (text, style) in enumerate(line):
        cells = cell_len(text)
        if cells > left:
            kept = set_cell_size(text, left)
            lost = text[len(kept) :] + "".join(text for text, _ in line[at + 1 :])
            if lost.strip() and fitted and not left:
                kept, style = fitted.pop()
            if lost.strip() and kept:
                kept = set_cell_size(kept, max(0, cell_len(kept) - 1)) + "…"
            fitted.append((kept, style))
            left = 0
            break
        fitted.append((text, style))
        left -= cells
    if left:
        fitted.append((" " * left, ""))
    return tuple(fitted)


def _differing(old: Line, new: Line, width: int) -> tuple[int, int]:
    """Return the cells [start, end) outside of which two lines look the same."""
    if old[-1:] != new[-1:]:
        return 0, width
    start = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        start += cell_len(before[0])
    end = width
    if new[-1][0] == "" or _width(old) == _width(new) == width:  # a fitted line ends with nothing
        for before, after in zip(reversed(old), reversed(new), strict=False):
            if before != after:
                break
            end -= cell_len(before[0])
    return (start, end) if start < end else (0, width)


def _width(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)

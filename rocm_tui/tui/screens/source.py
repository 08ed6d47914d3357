"""Source: the generated kernel of a choice, its compiled forms, and the resources it uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.render.table import Line, Span, wrapped
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import shorten
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import Key, key
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine, PageBar

if TYPE_CHECKING:  # types only: the templates behind them are loaded in a thread
    from rocm_tui.render.kernel import Code
    from rocm_tui.session.kernel_source import ChoiceKernel, Stage

_SIDEWAYS = 16


class CodeView(LineView):
    """The lines of a `Code`; or given lines, without numbers."""

    BINDING_GROUP_TITLE = "Text"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l,right", "sideways(1)", "code.right", "to the right, in a long line"),
        key("h,left", "sideways(-1)", "code.left", "to the left"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._code: Code | None = None
        self._lines: Sequence[Line] = ()
        self._instead = ""
        self._word = ""
        self._first = 0
        self.matches = 0
        """The number of lines that contain the searched word."""

    def put(self, code: Code | None = None, lines: Sequence[Line] = (), instead: str = "") -> None:
        """Show this text from its beginning, or these lines, or a sentence."""
        self._code, self._lines, self._instead = code, lines, instead
        self.cursor = self.top = self._first = 0
        self.search(self._word)

    @property
    def _texts(self) -> list[str]:
        if self._code is not None:
            return self._code.lines
        return ["".join(text for text, _ in line) for line in self._lines]

    def search(self, word: str) -> None:
        """Highlight these letters, whatever their case; none if empty."""
        self._word = word.lower()
        self.matches = sum(self._word in line.lower() for line in self._texts) if word else 0
        self.repaint()

    def find(self, step: int, begin: int | None = None) -> bool:
        """Go to the next line with the searched word, wrapping around; False if there is none."""
        texts = self._texts
        at = self.cursor if begin is None else begin - step
        for line in ((at + step * by) % len(texts) for by in range(1, len(texts) + 1)):
            if self._word in texts[line].lower():
                self.move_cursor(line)
                return True
        return False

    def count(self) -> int:
        return len(self._code.lines) if self._code else len(self._lines)

    def line(self, index: int, width: int) -> Line:
        if self._code is None:
            return marked(self._lines[index], self._word)
        digits = len(str(len(self._code.lines)))
        number = f"{index + 1:>{digits}}  "
        text = marked(self._code.line(index), self._word)
        return ((number, "rail"), *scrolled(text, self._first))

    def empty(self, width: int) -> list[Line]:
        parts = wrapped(self._instead, width - 4)
        return [(), *(((f"  {part}", "dim"),) for part in parts)]

    def action_sideways(self, way: int) -> None:
        self._first = max(0, self._first + way * _SIDEWAYS)
        self.sync()


def marked(line: Line, word: str) -> Line:
    """Return the line with each `word`, which is in lower case, highlighted."""
    if not word:
        return line
    text = "".join(part for part, _ in line).lower()
    places = [match.start() for match in re.finditer(re.escape(word), text)]
    if not places:
        return line
    cuts = sorted({*places, *(place + len(word) for place in places)})
    spans: list[Span] = []
    begin = 0
    for part, style in line:
        inner = [cut - begin for cut in cuts if begin < cut < begin + len(part)]
        for start, end in zip([0, *inner], [*inner, len(part)], strict=True):
            at = begin + start
            inside = any(place <= at < place + len(word) for place in places)
            spans.append((part[start:end], "found" if inside else style))
        begin += len(part)
    return tuple(spans)


def scrolled(line: Line, by: int) -> Line:
    """Return the line without its first cells, if each character takes one."""
    spans: list[Span] = []
    for text, style in line:
        if by < len(text):
            spans.append((text[by:], style))
        by = max(0, by - len(text))
    return tuple(spans)


_RESOURCES = "resources"


class SourceScreen(BaseScreen):
    """A page for each text of the kernel, and one for its resources."""

    PLACE = "Source"
    CSS_PATH = "lists.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("tab", "turn(1)", "source.next", "the next page, also by its number"),
        key("shift+tab", "turn(-1)", "source.before", "the page before"),
        *(
            key(str(n), f"page({n - 1})", f"source.page{n}", "the page of this number")
            for n in range(1, 10)
        ),
        key("slash", "search", "source.search", "search, capital letters as small ones"),
        key("n", "find(1)", "source.find", "the next place that was searched for"),
        key("N", "find(-1)", "source.find_before", "the place before"),
        key("y", "copy", "source.copy", "copy the file's path, else the choice's hash"),
        key("o", "app.pop_screen", "source.close", "back"),
        key("escape", "back", "source.back", "end the search, then back"),
    ]

    def __init__(self, row: Row, choice: Choice) -> None:
        super().__init__()
        self._row = row
        self._choice = choice
        self._kernel: ChoiceKernel | None = None
        self._page = 0
        self.view = CodeView(id="code")

    def compose_body(self) -> ComposeResult:
        yield PageBar(id="pages")
        yield self.view
        yield OneLine(id="about")

    def on_mount(self) -> None:
        tuning = self._row.tuning
        problem = f"{plain(tuning.op)} {plain(stats.sizes_text(tuning))}"
        dtype, id = plain(stats.dtype_of(tuning)), f"id {self._row.id}"
        facts = [problem, plain(self._choice.label), dtype, id]
        self.show_title([fact for fact in facts if fact])
        self.set_focus(self.view)
        self.view.put(instead="Reading…")
        self._describe()
        self.run_worker(self._read(), group="source", exclusive=True)

    def update(self) -> None:
        now = self.program.feed.model.row(self._row.key)
        changed = now is not None and now.share != self._row.share
        self._row = now or self._row
        if changed and self._kernel is not None and self._stage is None:
            self._open(self._page)

    async def _read(self) -> None:
        session = self.program.feed.model.sessions.get(self._row.tuning.session or "")
        args = self._row.tuning, self._choice, session, self.program.layout
        try:
            self._kernel = await self.in_thread(_kernel, *args)
        except RocmTuiError as error:
            self.view.put(instead=plain(str(error)))
            self._about(plain(self._choice.hash or self._choice.label))
            return
        self._open(0)

    # Pages.

    @property
    def _names(self) -> list[str]:
        names = [stage.name for stage in self._kernel.stages] if self._kernel else []
        return [*names[:1], _RESOURCES, *names[1:]] if names else []

    @property
    def _stage(self) -> Stage | None:
        """The stage whose page is open; None on the page of the resources."""
        stages = self._kernel.stages if self._kernel else ()
        if not stages or self._page == 1:
            return None
        return stages[self._page - (self._page > 1)]

    def _open(self, page: int) -> None:
        self._page = page
        self._describe()
        stage, kernel = self._stage, self._kernel
        assert kernel is not None
        if stage is not None:
            self.view.put(instead="Reading…" if stage.text or stage.path else "Compiling…")
            self.run_worker(self._show(stage, kernel.source), group="text", exclusive=True)
            return
        from rocm_tui.render.kernel import facts  # loaded by now, in the thread

        self.view.put(lines=facts(self._row, self._choice, kernel, self.view.size.width))
        self._about(plain(self._choice.hash or self._choice.label))

    async def _show(self, stage: Stage, source: Stage) -> None:
        code, why = None, ""
        try:
            code = await self.in_thread(_code, stage, source)
        except RocmTuiError as error:
            why = plain(str(error))
        if self._stage is stage:  # else another page was opened meanwhile
            self.view.put(code, instead=why)
            self._describe_place()

    def _describe(self) -> None:
        names = self._names
        pages = [(str(n), plain(name), f"page({n - 1})") for n, name in enumerate(names, 1)]
        bar = self.query_one("#pages", PageBar)
        bar.display = bool(names)
        bar.open(f"page({self._page})", pages)
        self._describe_keys()

    def _describe_keys(self) -> None:
        keys: list[Key] = [("tab", "page", "turn(1)")] if self._names else []
        keys += [("/", "search", "search")] if self.view.count() else []
        keys += [("n", "next", "find(1)")] if self.view.matches else []
        path = self._stage.path if self._stage else None
        self.show_keys([*keys, ("y", "copy path" if path else "copy hash", "copy")])

    @on(LineView.CursorMoved)
    def _describe_place(self) -> None:
        """Show below the text its path and the line of the cursor."""
        stage = self._stage
        if stage is None:
            return
        where = str(stage.path) if stage.path else stage.about
        self._about(plain(where), plain(stage.about) if stage.path else "")

    def _about(self, where: str, more: str = "") -> None:
        self._describe_keys()
        line = self.query_one("#about", OneLine)
        total = self.view.count()
        place = f"{self.view.cursor + 1}/{total} " if total and self._stage else ""
        matches = self.view.matches
        place = f"{counted(matches, 'line')} match · {place}" if matches else place
        room = line.size.width - len(place) - 3
        text = f"{where} · {more}" if more and len(where) + len(more) + 3 <= room else where
        if len(text) > room:
            text = "…" + text[len(text) - room + 1 :] if "/" in text else shorten(text, room)
        right: Span = (place, "head")
        line.put(((f" {text}", "head"),), (right,))

    # Keys.

    def action_turn(self, by: int) -> None:
        if self._names:
            self._open((self._page + by) % len(self._names))

    def action_page(self, page: int) -> None:
        if page < len(self._names):
            self._open(page)

    async def action_search(self) -> None:
        if not self.query(Input):
            entry = Input(placeholder="search", compact=True, id="search")
            await self.query_one("#body").mount(entry, before="#about")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        """Go to the first match from the top of the visible part."""
        self.view.search(event.value)
        if event.value and self.view.count():
            self.view.find(1, begin=self.view.top)
        self._describe_place()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        word = event.value
        event.input.remove()
        self.set_focus(self.view)
        if word and not self.view.matches:
            self.program.warn(f"Nothing here holds {plain(word, 60)!r}.")

    def action_find(self, step: int) -> None:
        if self.view.matches:
            self.view.find(step)
            self._describe_place()
        else:
            self.program.warn("Nothing is searched for; / does.")

    def action_back(self) -> None:
        if self.query(Input):
            self.query_one(Input).remove()
            self.set_focus(self.view)
        elif self.view.matches:
            self.view.search("")
            self._describe_place()
        else:
            self.app.pop_screen()

    def action_copy(self) -> None:
        stage = self._stage
        if stage is not None and stage.path is not None:
            self.program.copy(str(stage.path), "the path")
        else:
            self.program.copy(self._choice.typed, f"the choice {self._choice.label}")


# In threads, since loading the templates and jinja2 takes long.


def _kernel(
    tuning: Tuning, choice: Choice, session: Session | None, layout: Layout
) -> ChoiceKernel:
    from rocm_tui.session.kernel_source import kernel_of

    return kernel_of(tuning, choice, session, layout)


def _code(stage: Stage, source: Stage) -> Code:
    from rocm_tui.render import kernel  # noqa: F401 - for the event loop, which needs it next
    from rocm_tui.render.kernel import Code
    from rocm_tui.session.kernel_source import text_of

    return Code(text_of(stage, source), stage.language)

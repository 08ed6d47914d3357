"""Compare: choices of one tuning side by side, and how the sources of two differ."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.render import side_by_side
from rocm_tui.render.choices import Footprint
from rocm_tui.render.resources import tell
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.compare_view import CompareView, DiffView, Shown, with_whiskers
from rocm_tui.tui.widgets.one_line import Key


class CompareScreen(BaseScreen):
    """The marked choices, or those near the best; the first column is what the rest is told by."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#compare"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l,right", "column(1)", "compare.next", "another choice"),
        key("h,left", "column(-1)", "compare.before", "another choice"),
        key("d", "diff", "compare.diff", "how the choices' sources differ, and back"),
        key("e", "equal", "compare.equal", "keys of the configuration that are equal, too"),
        key("p", "pin", "compare.pin", "pin the choice; asks"),
        key("y", "copy", "compare.copy", "copy the choice's hash"),
        key("escape", "back", "compare.back", "back"),
    ]

    def __init__(self, row: Row, marked: AbstractSet[str]) -> None:
        super().__init__()
        self._row = row
        self._marked = marked
        self._all_keys = False
        self._footprints: Mapping[str, Footprint] = {}
        self._choices: tuple[Choice, ...] = ()

    def compose_body(self) -> ComposeResult:
        yield CompareView(id="compare")
        yield DiffView()

    @property
    def view(self) -> CompareView:
        return self.query_one("#compare", CompareView)

    @property
    def diff(self) -> DiffView:
        return self.query_one(DiffView)

    def on_mount(self) -> None:
        self.diff.display = False
        self.update()
        self.run_worker(self._look_up(), group="resources", exclusive=True)

    def update(self) -> None:
        """Show the tuning as it is now."""
        now = self.program.feed.model.row(self._row.key)
        changed = now is not None and now is not self._row
        if now is not None:
            self._row = now
        if changed or not self._choices:
            self._fill()

    def _fill(self) -> None:
        tuning = self._row.tuning
        self._choices = side_by_side.chosen(tuning, self._marked)
        facts = side_by_side.facts(tuning, self._choices, self._footprints, all_keys=self._all_keys)
        lines = with_whiskers(tuning, self._choices, facts)
        self.view.put(Shown(tuning, self._choices, tuple(lines)))
        self._describe()

    def _describe(self) -> None:
        tuning = self._row.tuning
        place = f"Compare   {plain(tuning.op)} {plain(stats.sizes_text(tuning))}"
        facts = [
            plain(stats.dtype_of(tuning)),
            f"{len(self._choices)} choices",
            f"id {self._row.id}",
        ]
        self.show_title(place, [fact for fact in facts if fact])
        keys: list[Key] = [("h l", "choice", "next")]
        keys.append(("d", "choices" if self.diff.display else "source diff", "diff"))
        keys += [] if self.diff.display else [("e", "equal keys", "equal"), ("p", "pin", "pin")]
        self.show_keys([*keys, ("y", "copy", "copy"), ("esc", "back", "back")])

    async def _look_up(self) -> None:
        """What the kernels take, where that can be known."""
        self._footprints = await to_thread(_kernels, self.program.layout.root, self._choices)
        if self._footprints:
            self._fill()

    # Keys.

    def action_column(self, by: int) -> None:
        self.view.choose(self.view.column + by)
        if self.diff.display:
            self._ask_diff()

    def action_next(self) -> None:
        """The column after the chosen one, and from the last the first."""
        last = self.view.column == len(self._choices) - 1
        self.action_column(-self.view.column if last else 1)

    def action_equal(self) -> None:
        self._all_keys = not self._all_keys
        self._fill()

    def action_back(self) -> None:
        if self.diff.display:
            self.action_diff()
        else:
            self.app.pop_screen()

    def action_diff(self) -> None:
        """Between the tables and the difference of the chosen column's source from the first's."""
        show = not self.diff.display
        self.diff.display, self.view.display = show, not show
        self.set_focus(self.diff if show else self.view)
        self._describe()
        if show:
            self._ask_diff()

    def _ask_diff(self) -> None:
        self.run_worker(self._tell_diff(), group="diff", exclusive=True)

    async def _tell_diff(self) -> None:
        first = self._choices[0]
        other = self._choices[self.view.column or min(1, len(self._choices) - 1)]
        title = f"{plain(first.label)} → {plain(other.label)}"
        session = self.program.feed.model.sessions.get(self._row.tuning.session or "")
        self.diff.put(title, [], "Reading…")
        try:
            lines = await to_thread(_difference, self._row.tuning, first, other, session)
        except RocmTuiError as error:
            self.diff.put(title, [], plain(str(error)))
            return
        same = "Their sources are the same: only the way of launching differs."
        self.diff.put(title, lines, same)

    def action_pin(self) -> None:
        choice = self.view.chosen
        if choice is not None:
            self.program.ask.pin(self._row, choice)

    def action_copy(self) -> None:
        choice = self.view.chosen
        if choice is not None:
            self.program.copy(choice.hash or choice.label, f"the choice {choice.label}")


# In threads, where the templates and jinja2 are loaded, which takes long.


def _kernels(cache_root: Path, choices: Sequence[Choice]) -> dict[str, Footprint]:
    from rocm_tui.session.kernel_resources import KernelResources

    return tell(KernelResources(cache_root).of(choices))


def _difference(tuning: Tuning, first: Choice, other: Choice, session: Session | None) -> list[str]:
    from rocm_tui.session.kernel_source import source_diff

    return source_diff(tuning, first, other, session)

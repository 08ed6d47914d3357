"""Report: a summary of everything that is watched, and how much of the hardware it uses."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.wire.jobs import CacheLevel
from rocm_tui.compare.comparison import inductors, of_sessions
from rocm_tui.compare.types import TuningSet
from rocm_tui.harmless import plain
from rocm_tui.render import pages as report_cells
from rocm_tui.render import plot
from rocm_tui.render.pages import PAGES, Page
from rocm_tui.render.plot import Axis, Curve, Mark
from rocm_tui.render.table import Column, Line, Span, filled, whole, wrapped
from rocm_tui.report.job import report, scopes
from rocm_tui.report.roofline import Point, Roofline, rooflines
from rocm_tui.session.devices import MathKind, NoPeak, Peak, TunedDevice, attainable
from rocm_tui.session.history import device_names
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import flops, throughput
from rocm_tui.tui import job_actions
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import Key, key
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import PageBar

WORDS: dict[MathKind, str] = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
    "half": "fp16/bf16",
    "fp8": "fp8",
    "int8": "int8",
}


class RooflineView(LineView, can_focus=False):
    """A plot that fills the widget: the roofs of a device, its tunings, and the selected one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._roofline: Roofline | None = None
        self._point: Point | None = None

    def put(self, roofline: Roofline | None, point: Point | None) -> None:
        """Show this device, with `point` highlighted."""
        self._roofline, self._point = roofline, point
        self.sync()

    def heading(self, width: int) -> list[Line]:
        roofline = self._roofline
        if roofline is None:
            return []
        heads = [filled(whole(about(roofline, self._point), width), width)]
        heads += [*doubt(roofline, self._point)]
        room = self.size.height - len(heads) - plot.BESIDES
        if not roofline.points or room < 3:
            return heads
        return [*heads, *_plot(roofline, self._point, width - plot.PADDING, room)]


def about(roofline: Roofline, point: Point | None) -> Line:
    """Return the line about the device: its peaks for the arithmetic of the point, their source."""
    line: list[Span] = [(f" {plain(roofline.machine.label)}", "title")]
    if isinstance(roofline.peak, NoPeak):
        return (*line, (f"   no roof: {plain(roofline.peak.reason)}", "head"))
    flat = roofline.peak.tflops.get(point.kind) if point else None
    if point is not None and flat is not None:
        line.append((f"   {throughput(flat)} {WORDS[point.kind]}", "head"))
    facts = [f"memory {_bandwidth(roofline.peak.gbs)}"]
    if point is not None and point.cache is not None:
        facts.append(_holds(point.cache))
    facts += plain(roofline.peak.source).split(": ", 1)  # a narrow screen keeps the first
    return (*line, *((f" · {fact}", "head") for fact in facts))


def doubt(roofline: Roofline, point: Point | None) -> Iterator[Line]:
    """Explain why a point above every roof is wrong."""
    if point is None or point.wrong is None or point.share is None:
        return
    over = f" {point.share * 100:.0f} % of the roof cannot be: "
    measured = isinstance(roofline.peak, Peak) and roofline.peak.measured
    if point.wrong == "time":
        why = "the time was taken once and is too short; m in Watch measures it"
    elif measured:
        why = "the peak was measured too low, perhaps on a busy machine; m measures it again"
    else:
        why = "the time was measured, so the published peak is not this device's"
    yield ((over, "warn"), (why, ""))


def _bandwidth(gbs: float) -> str:
    return f"{gbs / 1e3:.1f} TB/s" if gbs >= 1e3 else f"{gbs:.0f} GB/s"


def _holds(cache: CacheLevel) -> str:
    """`L2 of 8 MiB 6963 GB/s`."""
    size = f"{plain(cache.name)} of {cache.bytes / (1 << 20):g} MiB"
    return f"{size} {_bandwidth(cache.gbs)}" if cache.gbs else size


def _plot(roofline: Roofline, point: Point | None, width: int, height: int) -> list[Line]:
    across = [other.intensity for other in roofline.points]
    up = [other.tflops for other in roofline.points]
    curves: list[Curve] = []
    if isinstance(roofline.peak, Peak):
        kinds = _kinds(roofline.points, point)
        flats = [flat for kind in kinds if (flat := roofline.peak.tflops.get(kind))]
        up += flats
        across += [flat * 1e3 / roofline.peak.gbs for flat in flats]
        curves = [Curve(partial(attainable, roofline.peak, kind), "rail") for kind in kinds]
        curves[:1] = [Curve(curve.value, "") for curve in curves[:1]]
        curves += _cache_curves(roofline.peak, roofline.points, kinds)
    x, y = plot.axis(across, width), plot.axis(up, height, 1.6)
    marks = [Mark(other.intensity, other.tflops, "•", "dim") for other in roofline.points]
    if point is not None:
        marks = [*_room(y, point), *marks, Mark(point.intensity, point.tflops, "◆", "accent")]
    left = f"; {roofline.left_out} left out: unknown operation count" if roofline.left_out else ""
    return plot.draw(x, y, curves, marks, f"FLOP/s against FLOP/byte{left}", _rate)


def _rate(tflops: float) -> str:
    """`500 M`, `20 G`, as in the table below."""
    number, unit = flops(tflops).split(" ")
    return f"{float(number):g} {unit}"


def _cache_curves(peak: Peak, points: Sequence[Point], kinds: Sequence[MathKind]) -> list[Curve]:
    """Return the roofs of the caches that bound a point."""
    used = dict.fromkeys(point.cache for point in points if point.cache and point.cache.gbs)
    return [
        Curve(partial(attainable, peak, kinds[0], cache=cache), "rail") for cache in used if kinds
    ]


def _room(y: Axis, point: Point) -> list[Mark]:
    """Return a dotted line from the point to its roof."""
    if point.roof is None or point.roof <= point.tflops:
        return []
    rows = range(y.cell(point.tflops) + 1, y.cell(point.roof))
    return [Mark(point.intensity, y.value(row + 0.5), "┊", "rail") for row in rows]


def _kinds(points: Sequence[Point], point: Point | None) -> list[MathKind]:
    """Return the kinds of arithmetic of the points, that of the chosen point first."""
    first = [point.kind] if point else []
    return list(dict.fromkeys([*first, *(other.kind for other in points)]))


class ReportPage(Grid):
    """A table and, in the lines below its rows, the sentences about it."""

    def __init__(self, columns: Sequence[Column], *, id: str) -> None:
        super().__init__(columns, "", id=id)
        self._page: Page | None = None
        self._sentences: list[Line] = []

    def show(self, page: Page) -> None:
        self._page = page
        self.put(page.cells)

    @property
    def current(self) -> Row | None:
        """The tuning of the line under the cursor."""
        return self.pick(self._page.rows) if self._page else None

    def heading(self, width: int) -> list[Line]:
        if self._page is None:
            return []
        sentences = self._page.sentences
        self._sentences = [()] if self._page.cells and sentences else []
        for text, style in sentences:
            self._sentences += [((part, style),) for part in wrapped(text, width - 3)]
        return super().heading(width)

    def count(self) -> int:
        return super().count() + len(self._sentences)

    def line(self, index: int, width: int) -> Line:
        rows = super().count()
        return super().line(index, width) if index < rows else self._sentences[index - rows]

    @property
    def hides_sentences(self) -> bool:
        """Whether some of the sentences are below what is seen."""
        return bool(self._sentences) and self.top + self.room < self.count()

    def on_resize(self) -> None:
        """Let the screen name the keys again: the sentences may be in view now, or no longer."""
        super().on_resize()
        self.post_message(self.CursorMoved(self))

    def empty(self, width: int) -> list[Line]:
        return [(), (("  Reading…", "dim"),)] if self._page is None else []


_HEAD, _LEAST = 1, 6
"""Lines above the points, and the minimum lines of the table; the plot has the rest."""
_EVERY = 1.0
"""Seconds between two reports while tunings keep arriving."""


_About = tuple[str, str]
"""The kind and the name of a report's subject."""


@dataclass(frozen=True, slots=True)
class _Contents:
    pages: Mapping[str, Page]
    points: tuple[tuple[Roofline, Point], ...]
    tunings: int
    scopes: tuple[_About, ...]


def scope_facts(at: _About, every: Sequence[_About]) -> list[str]:
    """Return `session 2 of 3` for the report of one session; else the count of each kind."""
    kinds = {"system": "machine", "session": "session"}
    if at[0] in kinds:
        alike = [scope for scope in every if scope[0] == at[0]]
        where = alike.index(at) + 1 if at in alike else 0
        return [f"{kinds[at[0]]} {where:,} of {len(alike):,}"] if where else []
    numbers = {kind: sum(scope[0] == kind for scope in every) for kind in kinds}
    return [counted(number, kinds[kind]) for kind, number in numbers.items() if number]


def _look(whole: TuningSet, about: _About, measured: Mapping[TunedDevice, Peak]) -> _Contents:
    parts = scopes(whole)
    part = next((s.part for s in parts if (s.kind, s.name) == about), whole)
    headers = device_names({source for row in part.rows for source in row.tuning.sources})
    curves = rooflines(part.rows, part.sessions, measured, headers)
    points = report_cells.by_share(curves)
    pages = report_cells.pages(report(part), points)
    every = tuple((scope.kind, scope.name) for scope in parts)
    return _Contents(pages, tuple(points), len(part.rows), every)


_SCOPES = "the report of another machine or session, or of all"


class ReportScreen(BaseScreen):
    """A page for each question; the report is computed outside of the event loop, again whenever
    the model changes."""

    PLACE = "Report"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            key(f"alt+{at}", f"page('{name}')", f"report.{name}", f"open the page {name}")
            for at, name in enumerate(PAGES, start=1)
        ),
        key("tab,l,right", "turn(1)", "report.next", "the next page"),
        key("shift+tab,h,left", "turn(-1)", "report.before", "the page before"),
        key("m", "measure", "report.measure", "measure a missing roof"),
        key("right_square_bracket", "scope(1)", "report.scope", _SCOPES),
        key("left_square_bracket", "scope(-1)", "report.scope_before", _SCOPES),
        key("y", "copy", "report.copy", "copy the tuning's id"),
        key("escape", "back", "report.back", "back"),
    ]  # fmt: skip

    def __init__(self, name: str = "", ids: Sequence[str] = ()) -> None:
        """Report on these sessions, called `name`; without any, on everything that is watched."""
        super().__init__()
        self._called, self._ids = name, frozenset(ids)
        self._scope: _About = ("all", "")
        self._scopes: tuple[_About, ...] = (self._scope,)
        self._page = "saved"
        self._points: tuple[tuple[Roofline, Point], ...] = ()
        self._counts: dict[str, int] = {}
        self._count = 0
        self._busy = self._stale = False

    def compose_body(self) -> ComposeResult:
        yield PageBar(id="pages")
        yield RooflineView(id="plot")
        for name, columns in PAGES.items():
            yield ReportPage(columns, id=name)

    def on_mount(self) -> None:
        self.action_page(self._page)
        self.update()

    def page(self, name: str) -> ReportPage:
        return self.query_one(f"#{name}", ReportPage)

    def update(self) -> None:
        """Compute the report again after the model has changed."""
        if self._busy:
            self._stale = True
        else:
            self._busy = True
            self.run_worker(self._follow(), group="report")

    async def _follow(self) -> None:
        while True:
            self._stale = False
            part, measured = self._part, dict(self.program.peaks)
            frozen = TuningSet("", part.rows, dict(part.sessions), took=part.took)
            contents = await self.in_thread(_look, frozen, self._scope, measured)
            self._show(contents)
            if not self._stale:
                break
            await sleep(_EVERY)
        self._busy = False

    @property
    def _part(self) -> TuningSet:
        model = self.program.feed.model
        return of_sessions(self._called, self._ids, model) if self._ids else inductors("", model)

    def _show(self, contents: _Contents) -> None:
        self._points, self._count = contents.points, contents.tunings
        self._scopes = contents.scopes
        for name, page in contents.pages.items():
            self.page(name).show(page)
            self._counts[name] = page.count
        self._describe()

    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        kind, name = self._scope
        about = f"{'session ' * (kind == 'session')}{plain(name, 60)}" if name else ""
        about = about or (f"session {plain(self._called)}" if self._called else "")
        facts = [counted(self._count, "tuning")]
        facts += scope_facts(self._scope, self._scopes)
        self.show_title(facts, about)
        pages: list[Key] = [
            ("", f"{name} {self._counts.get(name, '')}".strip(), f"page('{name}')")
            for name in PAGES
        ]
        self.query_one("#pages", PageBar).open(f"page('{self._page}')", pages)
        page = self.page(self._page)
        keys: list[Key] = [("tab", "next page", "turn(1)")]
        keys += [("m", "measure the roof", "measure")] if self._unmeasured else []
        keys += [("enter", "show in Watch", "open")] if page.current is not None else []
        keys += [("[ ]", "by session", "scope(1)")] if len(self._scopes) > 1 else []
        keys += [("G", "summary", "summary")] if page.hides_sentences else []
        keys += [("y", "copy id", "copy")] if page.current is not None else []
        self.show_keys(keys)
        self._plot()

    def _plot(self) -> None:
        shown = self._current
        plot = self.query_one("#plot", RooflineView)
        plot.display = self._page == "roofline" and shown is not None
        if shown is not None:
            plot.put(*shown)
            lines = len(self._points) + _HEAD
            self.page("roofline").styles.height = max(_LEAST, min(lines, self.size.height // 3))

    @property
    def _current(self) -> tuple[Roofline, Point] | None:
        """The tuning under the cursor of the roofline's table."""
        return self.page("roofline").pick(self._points)

    @property
    def _unmeasured(self) -> TunedDevice | None:
        """The device of the open page if its roof is unknown, or was measured too low, and it has a
        name."""
        if self._page != "roofline" or self._current is None:
            return None
        roofline, point = self._current
        peak, machine = roofline.peak, roofline.machine
        unknown = isinstance(peak, NoPeak) or (peak.measured and point.wrong == "peak")
        return machine if unknown and machine.name else None

    # Keys.

    def action_page(self, name: str) -> None:
        """Open this page."""
        self._page = name
        for other in PAGES:
            self.page(other).display = other == name
        self.set_focus(self.page(name))
        self._describe()

    def action_summary(self) -> None:
        """Go to the sentences below the table."""
        self.page(self._page).action_move_to(-1)

    def action_turn(self, by: int) -> None:
        names = list(PAGES)
        self.action_page(names[(names.index(self._page) + by) % len(names)])

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        if (row := self.require(self.page(self._page).current, "tuning")) is not None:
            back_to_watch(self.app).go_to(row)

    def action_scope(self, by: int) -> None:
        """Report on the next machine or session, or on all."""
        if len(self._scopes) < 2:
            self.program.warn("There is one machine and one session: the report is about all.")
            return
        at = self._scopes.index(self._scope) if self._scope in self._scopes else 0
        self._scope = self._scopes[(at + by) % len(self._scopes)]
        self._describe()
        self.update()

    def action_copy(self) -> None:
        if (row := self.require(self.page(self._page).current, "tuning")) is not None:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")

    def action_measure(self) -> None:
        machine = self._unmeasured
        if machine is not None:
            self.program.act(job_actions.measure_peak, machine)
        elif self._page != "roofline":
            self.program.warn("m measures a roof; rooflines are on the last page.")
        elif self._current is None:
            self.program.warn("No tuning is under the cursor.")
        else:
            self.program.warn("The roof of this device has been measured or published.")

"""The history of a problem: a list of what happened, a plot of the winner's time, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

from backend.counted import counted
from backend.model.choice import Choice
from backend.model.origin import provider
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render import plot
from rocm_tui.render.pins import moment
from rocm_tui.render.plot import Even, Mark
from rocm_tui.render.table import Field, Line, text_table
from rocm_tui.render.tuning_json import ProblemJson
from rocm_tui.render.tunings import UNDECIDED
from rocm_tui.session import numbers as fmt
from rocm_tui.session.history import Event, History
from rocm_tui.session.sessions import short_names

_UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """An event as it is listed: its number (None without a time of the day), the letter of its
    choice, who did it."""

    event: Event
    number: int | None
    letter: str
    who: str


def entries(history: History) -> list[HistoryLine]:
    """Return the events oldest first, as in the plot; then those of unknown time."""
    events = (*history.events, *history.undated)
    letters = _letters(events)
    names = short_names(event.session for event in events if event.session)
    return [
        HistoryLine(
            event,
            at if at <= len(history.events) else None,
            letters.get(event.kernel, ""),
            names.get(event.session, ""),
        )
        for at, event in enumerate(events, start=1)
    ]


def _letters(events: Sequence[Event]) -> Mapping[str, str]:
    """A letter for each choice, the same in list and plot: a kernel has other names in other
    processes, where Inductor counts its choices anew."""
    choices = dict.fromkeys(event.kernel for event in events if event.kernel)
    return dict(zip(choices, ascii_uppercase + ascii_uppercase.lower(), strict=False))


def _time(entry: HistoryLine) -> str:
    event = entry.event
    text = fmt.duration(event.ms)
    return text if event.low is not None else fmt.once(text)


def _style(entry: HistoryLine) -> str:
    styles = {"pin": "accent", "unpin": "accent", "measured": "strong", "running": "accent"}
    return styles.get(entry.event.what, "")


def _about(entry: HistoryLine, *, short: bool = False) -> str:
    """`short` is `torch → 2.13.0`: the version before is in an earlier line."""
    changed = entry.event.changed
    if short:
        changed = tuple(f"{words[0]} → {words[-1]}" for words in map(str.split, changed))
    return plain(" · ".join(filter(None, (*changed, entry.event.note))))


def _versus_aten(entry: HistoryLine) -> str:
    event = entry.event
    if event.ms is not None and provider(Choice(event.label, event.hash)) == "aten":
        return "is ATen"
    return fmt.once(fmt.factor(event.gain, event.error))


HISTORY: tuple[Field[HistoryLine], ...] = (
    Field(
        "at", "AT", 2, 3, right=True, style="dim",
        text=lambda entry: "" if entry.number is None else str(entry.number),
        about="its place, as below the plot",
    ),
    Field(
        "when", "WHEN", 16, 16, drop=4, style="dim",
        text=lambda e: moment(e.event.when) if e.event.when is not None else _UNKNOWN,
        about="when it happened, if a source records it",
    ),
    Field(
        "what", "WHAT", 8, 10, text=lambda entry: entry.event.what, style=_style,
        about="tuned, measured, pinned, unpinned; or taken from the cache or a pin, nothing timed",
    ),
    Field(
        "choice", "CHOICE", 14, 40, good=16,
        text=lambda entry: f"{entry.letter or ' '} {plain(entry.event.label)}",
        about="the winner, or the choice that was taken; its letter is in the plot",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, text=_time,
        style=lambda entry: "" if entry.event.low is not None else "dim",
        about="of one call; ~ taken once, else measured",
    ),
    Field(
        "gain", "VS ATEN", 7, 7, drop=6, right=True, name="vs ATen", style="dim",
        text=_versus_aten,
        about="ATen's time over it, both taken once",
    ),
    Field(
        "tie", "TIE", 3, 7, drop=9, style="dim",
        text=lambda entry: UNDECIDED.get(entry.event.standing or "", ""),
        about="whether the best two are tied, or it is unclear which is faster",
    ),
    Field(
        "session", "SESSION", 8, 24, drop=7, text=lambda entry: plain(entry.who), style="dim",
        about="the process, if a source records it",
    ),
    Field(
        "torch", "TORCH", 6, 16, drop=8, text=lambda entry: plain(entry.event.setup.torch),
        style="dim", about="its version of PyTorch",
    ),
    Field(
        "changed", "CHANGED", 10, 60, drop=1, good=16,
        text=_about, short=lambda entry: _about(entry, short=True),
        style=lambda entry: "warn" if entry.event.changed else "dim",
        about="of torch, Triton, ROCm and device since before; a pin's note", fold=True,
    ),
)  # fmt: skip


def title(history: History) -> str:
    """How much there is, and what is not known."""
    count, lost = len(history.events), len(history.undated)
    text = counted(count, "event")
    if lost:
        text += f", {lost} more at an unknown time"
    return text


def chart(history: History, width: int, height: int) -> list[Line]:
    """Plot the winner's time by event; empty if none was timed or there is too little room.

    Letters are choices; a vertical line marks a changed version, `●` a pin, `○` an unpin.
    """
    dated = [e for e in entries(history) if e.number is not None]
    points = [(float(e.number or 0), e.event.ms, e) for e in dated if e.event.ms is not None]
    rows = height - plot.BESIDES
    if not points or rows < 3:
        return []
    unit, scale = fmt.time_unit(min(ms for _, ms, _ in points))
    y = _y_axis([ms * scale for _, ms, _ in points], rows)
    x = Even(0.5, len(dated) + 0.5, max(8, min(width - plot.PADDING, len(dated) * 20)), whole=True)
    places = [(number, y.place(ms * scale)) for number, ms, _ in points]

    def curve(at: float) -> float | None:
        place = _between(places, at)
        return None if place is None else y.value(place)

    marks = [mark for entry in dated for mark in _signs(entry, x, y)]
    marks += [
        Mark(number, ms * scale, e.letter, "good" if _is_clear(e.event) else "strong")
        for number, ms, e in points
    ]
    return plot.draw(x, y, curve if len(points) > 1 else None, marks, f"{unit} by event")


def _is_clear(event: Event) -> bool:
    """Whether it was measured to be faster than its rivals."""
    return event.low is not None and event.standing == "clear"


_WIDE = 10.0
"""From this ratio on only a logarithmic axis shows the lower ones."""


def _y_axis(values: Sequence[float], cells: int) -> Even:
    """Not from zero: what differs by some percent shall be seen to."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _WIDE:
        return plot.axis(values, cells)
    room = max((high - low) * 0.15, high * 0.02) or 1.0  # a log may print 0.0000 ms
    return Even(max(0.0, low - room), high + room, cells)


def _between(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """On the line from point to point."""
    for (left, low), (right, high) in pairwise(points):
        if left <= at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return None


def _signs(entry: HistoryLine, x: Even, y: Even) -> Iterator[Mark]:
    """Yield the marks of full height: a line where versions changed, named on top."""
    number = float(entry.number or 0)
    heights = [y.value(row + 0.5) for row in range(y.cells)]
    sign = {"pin": "●", "unpin": "○"}.get(entry.event.what)
    if sign is not None:
        yield Mark(number, heights[0], sign, "accent")
    if entry.event.changed:
        left = x.cell(number - 0.5)
        yield from (Mark(x.value(left + 0.5), height, "┊", "warn") for height in heights)
        names = " ".join(text.partition(" ")[0] for text in entry.event.changed)
        for at, char in enumerate(plain(names)[:11], start=left + 1):
            if at < x.cells:
                yield Mark(x.value(at + 0.5), heights[-1], char, "warn")


def history_text(history: History) -> str:
    """What `show --history` prints."""
    lines = chart(history, 72, 13)
    drawn = ["".join(text for text, _ in line).rstrip() for line in lines]
    return "\n".join([title(history), *drawn, "", text_table(HISTORY, entries(history))])


class EventJson(JsonObject):
    """An event of a problem; times in milliseconds and Unix seconds, unknown values are null."""

    what: str
    when: float | None
    hash: str | None
    ms: float | None
    low: float | None
    high: float | None
    gain: float | None
    tied: bool
    unclear: bool
    name: str | None
    session: str | None
    torch: str | None
    triton: str | None
    rocm: str | None
    device: str | None
    changed: tuple[str, ...]
    note: str | None
    id: str | None
    occurrence: int | None

    @classmethod
    def of(cls, event: Event) -> EventJson:
        return fill(
            cls,
            event,
            tied=event.standing == "tied",
            unclear=event.standing == "unclear",
            name=event.label or None,
            session=event.session or None,
            torch=event.setup.torch or None,
            triton=event.setup.triton or None,
            rocm=event.setup.rocm or None,
            device=event.setup.device or None,
            note=event.note or None,
            id=event.row.id if event.row else None,
            occurrence=event.row.occurrence if event.row else None,
        )


class HistoryJson(ProblemJson, Document, tag="rocm-tui/show-history/1"):
    precision: str | None
    events: list[EventJson]

    @classmethod
    def of(cls, history: History) -> HistoryJson:
        events = [EventJson.of(event) for event in (*history.events, *history.undated)]
        return fill(cls, history.row, history.row.tuning, events=events)

"""The history of a problem: a list of what happened, a plot of the winner's time, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.json_output import JsonObject, fill
from rocm_tui.render import plot
from rocm_tui.render.pins import moment
from rocm_tui.render.plot import Axis, Curve, Even, Mark
from rocm_tui.render.table import Field, Line, text_table
from rocm_tui.render.tuning_json import ProblemJson
from rocm_tui.render.tunings import UNDECIDED
from rocm_tui.session import numbers as fmt
from rocm_tui.session.history import Event, History
from rocm_tui.session.sessions import short_names

_UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it is listed: its number (None without a time of the day), the letter of its
    choice, who did it."""

    event: Event
    number: int | None
    letter: str
    who: str


def entries(history: History) -> list[Entry]:
    """Oldest first, as the plot goes; then those of which no source tells when they were."""
    events = (*history.events, *history.undated)
    letters = _letters(events)
    names = short_names(event.session for event in events if event.session)
    return [
        Entry(
            event,
            at if at <= len(history.events) else None,
            letters.get(_identity(event), ""),
            names.get(event.session, ""),
        )
        for at, event in enumerate(events, start=1)
    ]


def _letters(events: Sequence[Event]) -> Mapping[str, str]:
    """A letter for each choice, the same in list and plot: a kernel has other names in other
    processes, where Inductor counts its choices anew."""
    choices = dict.fromkeys(identity for event in events if (identity := _identity(event)))
    return dict(zip(choices, ascii_uppercase + ascii_uppercase.lower(), strict=False))


def _identity(event: Event) -> str:
    """The choice's hash; its name where no source gives one."""
    return event.hash or event.label


def _time(entry: Entry) -> str:
    event = entry.event
    text = fmt.duration(event.ms)
    return text if event.low is not None else fmt.once(text)


def _style(entry: Entry) -> str:
    event = entry.event
    return {"pin": "accent", "unpin": "accent", "measured": "strong", "running": "accent"}.get(
        event.what, ""
    )


def _about(entry: Entry) -> str:
    event = entry.event
    return " · ".join((*event.changed, *([event.note] if event.note else [])))


def _about_short(entry: Entry) -> str:
    """`torch → 2.13.0`: what it was before stands in the line of that time."""
    event = entry.event
    parts = [text.split() for text in event.changed]
    short = [f"{part[0]} → {part[-1]}" for part in parts]
    return " · ".join((*short, *([event.note] if event.note else [])))


HISTORY: tuple[Field[Entry], ...] = (
    Field(
        "at", "AT", 2, 3, right=True, style="dim",
        text=lambda entry: "" if entry.number is None else str(entry.number),
        about="its place, as below the plot",
    ),
    Field(
        "when", "WHEN", 16, 16, drop=4, style="dim",
        text=lambda e: moment(e.event.when) if e.event.when is not None else _UNKNOWN,
        about="when it happened, where a source tells",
    ),
    Field(
        "what", "WHAT", 8, 10, text=lambda entry: entry.event.what, style=_style,
        about="tuned, measured, pinned, unpinned; or taken from the cache or a pin, nothing timed",
    ),
    Field(
        "choice", "CHOICE", 14, 40, good=16,
        text=lambda entry: f"{entry.letter or ' '} {plain(entry.event.label)}",
        about="which won, or was taken; its letter stands in the plot",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, text=_time,
        style=lambda entry: "" if entry.event.low is not None else "dim",
        about="of one call; ~ taken once, else measured",
    ),
    Field(
        "gain", "VS ATEN", 7, 7, drop=6, right=True, name="vs ATen", style="dim",
        text=lambda entry: fmt.once(fmt.factor(entry.event.gain)),
        about="ATen's time over it, both taken once",
    ),
    Field(
        "tie", "TIE", 3, 7, drop=9, style="dim",
        text=lambda entry: UNDECIDED.get(entry.event.standing or "", ""),
        about="whether the best two are tied, or it is unclear which is faster",
    ),
    Field(
        "session", "SESSION", 8, 24, drop=7, text=lambda entry: plain(entry.who), style="dim",
        about="the process, where a source tells",
    ),
    Field(
        "torch", "TORCH", 6, 16, drop=8, text=lambda entry: plain(entry.event.stand.torch),
        style="dim", about="its version of PyTorch",
    ),
    Field(
        "changed", "CHANGED", 10, 60, drop=1, good=16,
        text=lambda entry: plain(_about(entry)), short=lambda entry: plain(_about_short(entry)),
        style=lambda entry: "warn" if entry.event.changed else "dim",
        about="of torch, Triton, ROCm and device since before; a pin's note", fold=True,
    ),
)  # fmt: skip


def title(history: History) -> str:
    """How much there is, and what is not known."""
    count, lost = len(history.events), len(history.undated)
    text = counted(count, "event")
    if lost:
        text += f", {lost} more of which no source tells when"
    return text


def chart(history: History, width: int, height: int) -> list[Line]:
    """The winner's time by event, in so many cells; empty where none was timed, or no room is.

    Letters are choices, vertical lines stand where a version changed, `●` where it was pinned,
    `○` where it was unpinned.
    """
    known = [e for e in entries(history) if e.number is not None]
    points = [(float(e.number or 0), e.event.ms, e) for e in known if e.event.ms is not None]
    rows = height - plot.BESIDES
    if not points or rows < 3:
        return []
    unit, scale = fmt.time_unit(min(ms for _, ms, _ in points))
    y = _y_axis([ms * scale for _, ms, _ in points], rows)
    x = Even(0.5, len(known) + 0.5, max(8, min(width - plot.PADDING, len(known) * 20)), whole=True)
    places = [(number, y.place(ms * scale)) for number, ms, _ in points]

    def line(at: float) -> float | None:
        place = _between(places, at)
        return None if place is None else y.value(place)

    curve = Curve(line, "dim")
    marks = [mark for entry in known for mark in _signs(entry, x, y)]
    marks += [
        Mark(number, ms * scale, entry.letter, "good" if entry.event.low is not None else "strong")
        for number, ms, entry in points
    ]
    return plot.draw(x, y, [curve] if len(points) > 1 else [], marks, f"{unit} by event")


_WIDE = 10.0
"""From this ratio on only a logarithmic axis shows the lower ones."""


def _y_axis(values: Sequence[float], cells: int) -> Axis | Even:
    """Not from zero: what differs by some percent shall be seen to."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _WIDE:
        return plot.axis(values, cells)
    room = max((high - low) * 0.15, high * 0.02)
    return Even(max(0.0, low - room), high + room, cells)


def _between(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """On the line from point to point."""
    for (left, low), (right, high) in pairwise(points):
        if left <= at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return None


def _signs(entry: Entry, x: Even, y: Axis | Even) -> Iterator[Mark]:
    """What stands in the whole height: a line where versions changed, named on top."""
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
    facts = [f for f in HISTORY if f.key != "tie"]
    return "\n".join([title(history), *drawn, "", text_table(facts, entries(history))])


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
            torch=event.stand.torch or None,
            triton=event.stand.triton or None,
            rocm=event.stand.rocm or None,
            device=event.stand.device or None,
            note=event.note or None,
            id=event.row.id if event.row else None,
            occurrence=event.row.occurrence if event.row else None,
        )


class HistoryJson(ProblemJson):
    precision: str | None
    events: list[EventJson]

    @classmethod
    def of(cls, history: History) -> HistoryJson:
        events = [EventJson.of(event) for event in (*history.events, *history.undated)]
        return fill(cls, history.row, history.row.tuning, events=events)

"""Which tuning and which choice a person means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from backend.disk.layout import Layout, is_file_name
from backend.model.choice import Choice
from backend.model.inductor_kernel import SYSTEM, TRITON, is_digest, is_inductors
from backend.model.session import Session, systems_of
from backend.model.tuning import Pin, Tuning
from rocm_tui.errors import NoSuchChoice, NoSuchTuning
from rocm_tui.meant import did_you_mean
from rocm_tui.session import stats
from rocm_tui.session.model import Row


def find_row(rows: Sequence[Row], text: str) -> Row:
    """The latest tuning whose id is or begins with `text`; one that was cut off comes last.

    Raises NoSuchTuning where there is none, or where `text` begins several ids.
    """
    wanted = text.lower()
    exact = [row for row in rows if wanted in row.ids]
    rows_meant = exact or [row for row in rows if wanted and row.id.startswith(wanted)]
    if not rows_meant:
        near = did_you_mean(wanted, (row.id for row in rows))
        raise NoSuchTuning(f"no tuning has the id {text!r}{near}; `rocm-tui ls` prints the ids")
    if len({row.id for row in rows_meant}) > 1:
        ids = ", ".join(sorted({row.id for row in rows_meant}))
        raise NoSuchTuning(f"{text!r} begins several ids: {ids}; give more digits")
    return max(
        rows_meant,
        key=lambda row: (row.tuning.key is not None, row.tuning.state != "cut", row.occurrence),
    )


def find_choice(tuning: Tuning, text: str) -> Choice:
    """The choice with that name, hash or hash prefix; `#2` is the second fastest.

    Raises NoSuchChoice where none or several fit.
    """
    if text.startswith("#"):
        return _by_place(tuning, text)
    for fits in (
        [c for c in tuning.choices if text in (c.name, c.hash, c.label)],
        [c for c in tuning.choices if c.hash and c.hash.startswith(text)],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            names = ", ".join(c.hash or c.label for c in fits)
            raise NoSuchChoice(f"{text!r} means several choices: {names}; give a hash or #PLACE")
    near = did_you_mean(text, (c.name for c in tuning.choices if c.name))
    names = ", ".join(c.label for c in tuning.choices[:5]) or "none"
    raise NoSuchChoice(f"tuning {tuning.id} has no choice {text!r}{near}; it has {names}")


def find_device_choice(row: Row, text: str) -> tuple[Row, Choice]:
    """The same of a row of several devices, whose choices have other hashes on each: with the row
    of the device that has it. Places, and what all have, are those of the first device."""
    try:
        return row, find_choice(row.tuning, text)
    except NoSuchChoice:
        for device in row.devices:
            with suppress(NoSuchChoice):
                return device, find_choice(device.tuning, text)
        raise


def _by_place(tuning: Tuning, text: str) -> Choice:
    timed = stats.ranked(tuning)
    place = int(text[1:]) if text[1:].isascii() and text[1:].isdigit() else 0
    if not timed:
        raise NoSuchChoice(
            f"tuning {tuning.id} has no {text}: no choice of it was timed; give a name or a hash"
        )
    if not 1 <= place <= len(timed):
        raise NoSuchChoice(
            f"tuning {tuning.id} has no choice {text!r}; places go from #1 to #{len(timed)}"
        )
    return timed[place - 1]


def find_pins(pins: Sequence[Pin], texts: Iterable[str]) -> list[Pin]:
    """The pins of the tunings whose ids are or begin with one of `texts`, each pin once.

    Raises NoSuchTuning where there is none of a text, or where it begins several ids.
    """
    meant: list[Pin] = []
    for text in texts:
        meant += [pin for pin in _find_pins(pins, text) if pin not in meant]
    return meant


def _find_pins(pins: Sequence[Pin], text: str) -> list[Pin]:
    wanted = text.lower()
    meant = [pin for pin in pins if wanted and pin.id.startswith(wanted)]
    if not meant:
        near = did_you_mean(wanted, (pin.id for pin in pins))
        raise NoSuchTuning(f"no pin has the id {text!r}{near}; `rocm-tui pins` prints the ids")
    if len({pin.id for pin in meant}) > 1:
        raise NoSuchTuning(f"{text!r} begins the ids of several pins; give more digits")
    return meant


def system_hash(row: Row, sessions: Mapping[str, Session], layout: Layout) -> str | None:
    """The cache file of `layout` that holds the tuning, if its sources or its session tell; of a
    Triton kernel the folder of its file, and one name for all best configs of Inductor's."""
    if is_inductors(row.tuning.op):
        return SYSTEM
    sources = [Path(source) for source in row.tuning.sources]
    if row.tuning.op == TRITON:
        return next(
            (source.parent.name for source in sources if is_digest(source.parent.name)), None
        )
    inside = (source.name for source in sources if source.parent == layout.autotune)
    names = (*inside, *sorted(systems_of(row.tuning, sessions)))
    return next((n for n in names if is_file_name(n) and layout.cache_file(n).exists()), None)

"""Which tuning and which choice a person means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from backend.disk.layout import Layout, is_file_name
from backend.model.choice import Choice
from backend.model.inductor_kernel import SYSTEM, TRITON, is_digest, is_inductors
from backend.model.session import Session, systems_of
from backend.model.tuning import Pin, Tuning
from rocm_tui.errors import NoSuchChoice, NoSuchTuning, RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.meant import did_you_mean
from rocm_tui.session import stats
from rocm_tui.session.model import Row


class _Item(Protocol):
    """What has an id, and perhaps other ids under which it is known."""

    @property
    def id(self) -> str: ...


_T = TypeVar("_T", bound=_Item)


def with_id(
    items: Iterable[_T], text: str, kind: str, command: str, error: type[RocmTuiError]
) -> list[_T]:
    """Return the items with an id that is `text`, else the ones whose id begins with it.

    Raises `error` if there are none, or if `text` means several ids; `rocm-tui COMMAND` lists them.
    """
    listed, wanted, shown = list(items), text.lower(), plain(text)
    exact = [item for item in listed if wanted in getattr(item, "ids", (item.id,))]
    meant = exact or [item for item in listed if wanted and item.id.startswith(wanted)]
    if not meant:
        near = did_you_mean(wanted, (item.id for item in listed))
        raise error(f"no {kind} has the id {shown!r}{near}; `rocm-tui {command}` prints the ids")
    if len(ids := sorted({item.id for item in meant})) > 1:
        raise error(f"{shown!r} begins several ids: {', '.join(ids)}; give more digits")
    return meant


def find_row(rows: Sequence[Row], text: str) -> Row:
    """The latest tuning whose id is or begins with `text`; one that is not done comes last.

    Raises NoSuchTuning where there is none, or where `text` begins several ids.
    """
    return max(
        with_id(rows, text, "tuning", "ls", NoSuchTuning),
        key=lambda row: (row.tuning.key is not None, row.tuning.state == "done", row.occurrence),
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
            f"tuning {tuning.id} has no {text}: none of its choices was timed; give a name or hash"
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
        pins_of_id = with_id(pins, text, "pin", "pin", NoSuchTuning)
        meant += [pin for pin in pins_of_id if pin not in meant]
    return meant


def system_hash(row: Row, sessions: Mapping[str, Session], layout: Layout) -> str | None:
    """Return the name of the cache file of `layout` that holds the tuning, if its sources or its
    session show that; of a Triton kernel the folder of its file, and one name for all best configs
    of Inductor's."""
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

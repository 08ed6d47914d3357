"""What is known of a choice's kernel beside its texts: what it takes of its GPU, what it is to the
program, its configuration."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from backend.model.choice import Choice
from backend.toolchain.resources import Unknown
from rocm_tui.harmless import plain
from rocm_tui.render.choices import RESOURCES
from rocm_tui.render.shares import share_line
from rocm_tui.render.side_by_side import cells
from rocm_tui.render.table import Line
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.kernel_source import ChoiceKernel
from rocm_tui.session.model import Row

_NAME = 12
_VALUE = 12


def facts(row: Row, choice: Choice, kernel: ChoiceKernel, width: int) -> list[Line]:
    """The page `resources` of the Source screen."""
    return [*_taken(kernel, width), (), *_share(row, choice, width), (), *_config(choice, width)]


def _taken(kernel: ChoiceKernel, width: int) -> Iterator[Line]:
    known = kernel.resources
    if isinstance(known, Unknown):
        yield (("Of its GPU", "accent"),)
        for part in wrap(f"not known: {plain(known.reason)}", max(20, width - 4)):
            yield ((f"  {part}", "dim"),)
        return
    yield (
        ("Of its GPU", "accent"),
        (f"  {plain(known.target.arch or str(known.target), 40)}", "dim"),
    )
    texts = cells(known)
    for column in RESOURCES:
        name, value = column.title.lower().ljust(_NAME), texts[column.key].rjust(_VALUE)
        if column.title.isupper() and len(column.title) < 5:
            name = column.title.ljust(_NAME)
        limiting = column.key == "SPILLS" and texts[column.key] not in ("0", "?")
        style = "warn" if limiting else ""
        yield ((f"  {name}", "dim"), (value, style), (f"   {column.about}", "dim"))


def _share(row: Row, choice: Choice, width: int) -> Iterator[Line]:
    yield (("In the program", "accent"),)
    time = fmt.duration(stats.time_ms(row.tuning, choice))
    if stats.once(row.tuning, choice):
        time = fmt.once(time, fmt.SUSPECT if row.suspect else fmt.ONCE)
    best = stats.winner(row.tuning)
    place = row.tuning.choices.index(choice) + 1 if choice in row.tuning.choices else None
    of = f", #{place} of {len(row.tuning.choices)}" if place else ""
    yield ((f"  {'time'.ljust(_NAME)}", "dim"), (time.rjust(_VALUE), ""), (of, "dim"))
    line = share_line(row.share)
    if line is None:
        text = "no profile or recorded run tells what share of a program it is"
    elif best is not None and choice != best:
        text = "the share is that of the choice in use:"
    else:
        text = ""
    for part in wrap(text, max(20, width - 4)):
        yield ((f"  {part}", "dim"),)
    if line is not None:
        yield ((" ", ""), *line)


def _config(choice: Choice, width: int) -> Iterator[Line]:
    yield (("Choice", "accent"),)
    yield ((f"  {'name'.ljust(_NAME)}", "dim"), (plain(choice.label), ""))
    if choice.hash:
        for at, part in enumerate(wrap(plain(choice.hash, 400), max(20, width - _NAME - 4))):
            yield ((f"  {'' if at else 'hash'}".ljust(_NAME + 2), "dim"), (part, ""))
    for key, value in choice.config.items():
        yield ((f"  {plain(key, 40)}".ljust(26), "dim"), (plain(str(value), 200), ""))

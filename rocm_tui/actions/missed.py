"""What logs say that tuned tables lacked, whatever else they tell: how many products, and the
command that lists them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.asked.ask import Asked
from rocm_tui.ingest.asked.logs import BEGINNING, asked_in
from rocm_tui.ingest.records import STDIN


@dataclass(frozen=True, slots=True)
class Missed:
    """`products` of the beginning of a log that it missed and none of `tables` has, and how many
    `nameless` misses, of which it does not say of what."""

    path: str
    products: int
    nameless: int = 0
    tables: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What lists them."""
        return shlex.join(["rocm-tui", "cover", self.path, *self.tables])

    @property
    def line(self) -> str:
        """`2 products missed in tuned tables: rocm-tui cover server.log`."""
        products = counted(self.products, "product")
        nameless = counted(self.nameless, "miss", "misses") + " without a name"
        parts = [products] * bool(self.products) + [nameless] * bool(self.nameless)
        lacking = ", which none of the tables here has" if self.tables and self.products else ""
        return plain(f"{' and '.join(parts)} missed in tuned tables{lacking}: {self.command}")


def missed_in(paths: Iterable[str], tables: Iterable[str] = ()) -> list[Missed]:
    """Those of these files that tell of misses; what is no file tells of none. Tables among them,
    and the `tables`, are read where one does."""
    logs = [path for path in dict.fromkeys(paths) if _is_file(path)]
    told = [(path, asked) for path in logs if (asked := _asked(path)) is not None]
    if not told:
        return []
    from rocm_tui.actions.missed_tables import compared  # few logs tell of misses

    return [
        Missed(path, products, sum(asked.nameless.values()), named)
        for path, asked, products, named in compared(told, logs, tables)
    ]


def _asked(path: str) -> Asked | None:
    """What it asks for; None where it tells of no miss."""
    asked = Asked()
    try:
        asked_in(Path(path), asked, BEGINNING)
    except OSError:
        return None
    told = asked.nameless or any(tally.missed for tally in asked.tallies.values())
    return asked if told else None


def _is_file(path: str) -> bool:
    return path != STDIN and Path(path).is_file()

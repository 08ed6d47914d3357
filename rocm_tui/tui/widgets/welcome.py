"""What stands in Watch before the first tuning: what is happening, or what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rocm_tui.harmless import plain
from rocm_tui.session.numbers import shorten
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only, see LineView
    from rocm_tui.ingest.records import SourceStatus
    from rocm_tui.render.table import Line
    from rocm_tui.tui.host import Host

_COMMANDS = (
    ("rocm-tui watch -- python train.py", "start your program, and watch it here"),
    ("rocm-tui run -- python train.py", "the same from another terminal"),
    ("rocm-tui demo", "a small model, right now"),
)


class Welcome(LineView):
    """Sentences, no list."""

    def __init__(self, paths: list[str], *, alone: bool) -> None:
        """`alone` where no program is started here: then what to start is said."""
        super().__init__(id="welcome")
        self._paths = paths
        self._alone = alone
        self._read = False
        self._sources: Sequence[SourceStatus] = ()
        self._told: Sequence[Line] = ()

    def put(self, sources: Sequence[SourceStatus], told: Sequence[Line], *, read: bool) -> None:
        """How each source is; what is happening, where anything is; whether all that was there at
        the start is read."""
        self._sources, self._told, self._read = sources, told, read
        self.sync()

    def count(self) -> int:
        return 0

    def empty(self, width: int) -> list[Line]:
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return [
            (),
            (
                (
                    f"  No tuning yet{'' if self._read else ': what is there is being read'}.",
                    "strong",
                ),
            ),
            (),
            (("  A row appears here for each operation that torch.compile tunes with", ""),),
            (("  max_autotune: its choices, their times, and which one wins.", ""),),
            (),
            *(self._told or (self._commands() if self._alone else [])),
            (),
            ((f"  Watching {plain(self._paths[0])}{more}", "dim"),),
            *self._trouble(width),
            *self._missed(width),
        ]

    def _missed(self, width: int) -> list[Line]:
        missed = cast("Host", self.app).missed
        if not missed:
            return []
        from rocm_tui.render.table import folded  # few logs tell of misses

        return [part for one in missed for part in folded(((f"  {one.line}", "warn"),), width)]

    def _commands(self) -> list[Line]:
        return [((f"  {name:<36}", "accent"), (about, "dim")) for name, about in _COMMANDS]

    def _trouble(self, width: int) -> list[Line]:
        """What keeps sources from being read: a wrong path should not look like a quiet one."""
        words = {
            "waiting": "is not there yet",
            "not read": "is not read (S says why)",
            "unreadable": "cannot be read (S says why)",
        }
        told: list[Line] = []
        for source in self._sources:
            if source.state == "not read" and not source.problems:
                continue  # one of a folder, of a format that is not looked for there
            if source.state in words:
                path = shorten(plain(source.path), max(20, width - 32))
                told.append(((f"  {path} {words[source.state]}", "warn"),))
        return told

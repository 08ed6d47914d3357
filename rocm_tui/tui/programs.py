"""The programs whose output can be shown: started by this screen, or by earlier screens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backend.disk.layout import Layout

if TYPE_CHECKING:  # most screens show no program
    from rocm_tui.launch.program import KeptProgram, Launched, Program


class Programs:
    """The shown program is the one that the person chose, else this screen's, else the latest.
    Everything but `any_known` reads files."""

    def __init__(self, launched: Launched | None, layout: Layout) -> None:
        self._launched = launched
        self._layout = layout
        self._shown: Program | None = launched
        self._opened: dict[Path, Program] = {} if launched is None else {launched.log: launched}

    @property
    def any_known(self) -> bool:
        """Whether a program has been found so far."""
        return self._shown is not None

    @property
    def shown(self) -> Program | None:
        """The shown program; None if no screen started one."""
        if self._shown is None:
            self._open(self._recorded()[:1])
        return self._shown

    def place(self) -> tuple[int, int]:
        """Return the number of the shown program, from 1, and the number of programs."""
        logs = self._logs()
        shown = self.shown
        return (logs.index(shown.log) + 1 if shown and shown.log in logs else 0), len(logs)

    def turn(self, by: int) -> Program | None:
        """Show the program `by` places further down."""
        at, of = self.place()
        if of:
            self._show(self._logs()[(at - 1 + by) % of])
        return self._shown

    def choose(self, run: str) -> bool:
        """Show the program of this run; False if no screen started it."""
        log = next((log for log in self._logs() if log.name.startswith(f"{run}.")), None)
        if log is not None:
            self._show(log)
        return log is not None

    def _show(self, log: Path) -> None:
        if log in self._opened:
            self._shown = self._opened[log]
        else:
            self._open([program for program in self._recorded() if program.log == log])

    def _open(self, programs: list[KeptProgram]) -> None:
        for program in programs:
            from rocm_tui.launch.program import Detached

            self._shown = self._opened[program.log] = Detached(program.log, program.session)

    def _recorded(self) -> list[KeptProgram]:
        """Return the programs that screens started."""
        if next(self._layout.sessions.glob("*.output.log"), None) is None:
            return []
        from rocm_tui.launch.program import kept_programs  # only if there is one

        return kept_programs(self._layout)

    def _logs(self) -> list[Path]:
        """Return the logs of running programs, newest first, then of others; this screen's before
        all."""
        logs = [program.log for program in self._recorded()]
        if self._launched is None:
            return logs
        return [self._launched.log, *(log for log in logs if log != self._launched.log)]

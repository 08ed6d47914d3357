"""What the program loads when it is first needed, here and nowhere else.

The first screen stands within the time of a bare Textual app because nothing of this is loaded
before it; that is why these imports are not at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, cast

from backend.disk.layout import Layout
from rocm_tui.config.places import config_given, name_of_theme, state_path
from rocm_tui.harmless import plain
from rocm_tui.tui.host import Host, Named, Requests
from rocm_tui.tui.themes import themes_for

if TYPE_CHECKING:  # types only, see above
    from backend.model.choice import Choice
    from backend.model.session import Fault
    from rocm_tui.actions.commands import Shell
    from rocm_tui.actions.cover import Missed
    from rocm_tui.config.memory import Memory
    from rocm_tui.jobs.queue import Job, JobQueue
    from rocm_tui.launch.program import KeptProgram, Launched, Program
    from rocm_tui.render.table import Line
    from rocm_tui.session.feed import Feed
    from rocm_tui.session.model import Row
    from rocm_tui.session.sessions import Processes
    from rocm_tui.tui.devices import Devices
    from rocm_tui.tui.docking import Dock
    from rocm_tui.tui.screens.base import BaseScreen
    from rocm_tui.tui.screens.leaving import LeaveScreen
    from rocm_tui.tui.screens.report import ReportScreen
    from rocm_tui.tui.widgets.panes import Panes


def memory(read_only: bool) -> Memory:
    from rocm_tui.config.memory import Memory

    return Memory(state_path(), read_only)


def chosen_theme(host: Host, colors: str) -> str:
    """Empty where nothing was chosen; with colours of their own the themes are made anew."""
    if not config_given() and not state_path().exists():
        return ""
    from rocm_tui.tui.preferences import chosen_theme, own_colours

    for theme in themes_for(colors):
        host.register_theme(own_colours(theme))
    return chosen_theme(host.memory, colors)


def take_up_settings(host: Host, colors: str) -> None:
    """A person's keys, what is wrong with their file; from now on themes are remembered."""

    def changed(name: str) -> None:
        host.memory.remember(name_of_theme(colors), name)

    host.watch(host, "theme", changed, init=False)
    if config_given():
        from rocm_tui.tui.preferences import begin

        begin(host)
    if state_path().exists() and host.memory.trouble:
        host.notify(plain(host.memory.trouble), severity="warning", markup=False, timeout=15)


def devices(screen: BaseScreen) -> Devices:
    from rocm_tui.tui.devices import Devices

    return Devices(screen)


def dock(screen: BaseScreen) -> Dock:
    from rocm_tui.tui.docking import Dock

    return Dock(screen)


def feed(
    paths: Sequence[str],
    layout: Layout,
    wake: Callable[[], None],
    polling: bool,
) -> Feed:
    from rocm_tui.session.feed import Feed

    return Feed(paths, layout, wake, polling=polling)


def asking(host: Host) -> Requests:
    from rocm_tui.tui.asking import Asking

    return Asking(host)


def refusing(host: Host) -> Requests:
    from rocm_tui.tui.read_only import Refusing

    return cast(Requests, Refusing(host))


def turn_read_only(host: Host, stays: bool) -> None:
    from rocm_tui.tui.read_only import turn

    turn(host, stays)


def jobs(layout: Layout, wake: Callable[[], None], python: str | None) -> JobQueue:
    from rocm_tui.jobs.queue import JobQueue

    return JobQueue(layout, wake, python=python)


def panes(rows: list[Row], layout: Layout) -> Panes:
    from rocm_tui.tui.widgets.panes import Panes

    return Panes(rows, layout.root)


def shell(host: Host) -> Shell:
    from rocm_tui.actions.commands import Shell

    return Shell(host.layout, host.paths, host.python)


def note_done(layout: Layout, command: str, outcome: str, ok: bool) -> None:
    """Log what was done. Raises StoreErrors."""
    from rocm_tui.actions.commands import note_done

    note_done(layout, command, outcome, ok)


def count_troubles(problems: Sequence[Fault]) -> int:
    """How many different ones a person has to hear of."""
    from rocm_tui.render.problems import troubles

    return len(troubles(problems))


# The screens.


def pins_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.pins import PinsScreen

    return PinsScreen


def jobs_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.jobs import JobsScreen

    return JobsScreen


def done_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.done import DoneScreen

    return DoneScreen


def trials_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.trials import TrialsScreen

    return TrialsScreen


def sessions_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.sessions import SessionsScreen

    return SessionsScreen


def session_comparison(a: Named, b: Named) -> BaseScreen:
    from rocm_tui.tui.screens.session_comparison import SessionComparisonScreen

    return SessionComparisonScreen(a, b)


def sources_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.sources import SourcesScreen

    return SourcesScreen


def entries_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.entries import EntriesScreen

    return EntriesScreen


def output_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.output import OutputScreen

    return OutputScreen


def report_screen() -> type[ReportScreen]:
    from rocm_tui.tui.screens.report import ReportScreen

    return ReportScreen


SCREENS: Mapping[str, Callable[[], type[BaseScreen]]] = {
    "done": done_screen,
    "entries": entries_screen,
    "jobs": jobs_screen,
    "pins": pins_screen,
    "report": report_screen,
    "sessions": sessions_screen,
    "sources": sources_screen,
    "trials": trials_screen,
}
"""What a key opens above Watch, and closes again."""


def help_screen() -> type[BaseScreen]:
    from rocm_tui.tui.screens.help import HelpScreen

    return HelpScreen


def compare_screen(row: Row, marked: AbstractSet[str]) -> BaseScreen:
    from rocm_tui.tui.screens.compare import CompareScreen

    return CompareScreen(row, marked)


def history_screen(row: Row) -> BaseScreen:
    from rocm_tui.tui.screens.history import HistoryScreen

    return HistoryScreen(row)


def source_screen(row: Row, choice: Choice) -> BaseScreen:
    from rocm_tui.tui.screens.source import SourceScreen

    return SourceScreen(row, choice)


def leave_question(launched: Program | None, jobs: Sequence[Job]) -> LeaveScreen:
    from rocm_tui.tui.screens.leaving import LeaveScreen

    return LeaveScreen(launched, jobs)


def recorded_programs(layout: Layout) -> list[KeptProgram]:
    """The programs that screens started; not looked for where there is no such file."""
    if next(layout.sessions.glob("*.output.log"), None) is None:
        return []
    from rocm_tui.launch.program import kept_programs

    return kept_programs(layout)


def detached(program: KeptProgram) -> Program:
    from rocm_tui.launch.program import Detached

    return Detached(program.log, program.session)


def follow_launched(host: Host, launched: Launched) -> None:
    from rocm_tui.tui.launching import follow

    follow(host, launched)


def misses(host: Host) -> object:
    from rocm_tui.tui.missing import Misses

    return Misses(host)


def missed_facts(missed: list[Missed]) -> list[str]:
    """What the title says of products that no table has."""
    if not missed:
        return []
    from rocm_tui.tui.missing import missed_fact

    return [missed_fact(missed)]


def doing_facts(launched: Launched | None, processes: Processes) -> list[str]:
    """What the title says of the programs that work."""
    if launched is None and not processes.live:
        return []
    from rocm_tui.tui.doing import facts

    return facts(launched, processes)


def doing_lines(
    launched: Launched | None, processes: Processes, width: int, tail: bool
) -> list[Line]:
    """The same for a screen that has nothing else to show."""
    if launched is None and processes.latest is None:
        return []
    from rocm_tui.tui.doing import lines

    return lines(launched, processes, width, tail=tail)

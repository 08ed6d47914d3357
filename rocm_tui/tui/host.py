"""What the program offers its screens. They know this and not the app, which knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.app import App
from textual.binding import BindingType
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen

from backend.disk.layout import Layout
from rocm_tui.harmless import plain
from rocm_tui.tui.keys import key

if TYPE_CHECKING:  # types only: the first screen stands before what they need is loaded
    from backend.model.choice import Choice
    from backend.pins.state import PinStatus
    from rocm_tui.actions.commands import Shell
    from rocm_tui.actions.cover import Missed
    from rocm_tui.config.memory import Memory
    from rocm_tui.jobs.queue import Job, JobQueue
    from rocm_tui.launch.program import Launched
    from rocm_tui.render.table import Line
    from rocm_tui.search.types import Search
    from rocm_tui.session.devices import Peak, TunedDevice
    from rocm_tui.session.feed import Feed
    from rocm_tui.session.graph_rows import GraphRow
    from rocm_tui.session.model import Row
    from rocm_tui.tui.programs import Programs


Named = tuple[str, Sequence[str]]
"""What a session, or a run, is called, and the ids of its processes."""


COMMANDS = (
    ("view: Show pins", "State, history, undo", "app.open('pins')"),
    ("view: Show report", "Of all that is watched", "app.open('report')"),
    ("view: Show trials", "Graphs, improve, prove", "app.open('trials')"),
    ("view: Show sessions", "Processes, and what each does", "app.open('sessions')"),
    ("view: Show jobs", "Progress, results, logs", "app.open('jobs')"),
    ("view: Show entries", "Rows of other tuners' tables", "app.open('entries')"),
    ("view: Show what was done", "Actions, their commands", "app.open('done')"),
    ("view: Show sources", "What is being read", "app.open('sources')"),
    ("view: Show output", "Of the program", "app.output"),
    ("view: Show help", "Every key and column", "app.help"),
    ("app: Change theme", "Colours", "app.change_theme"),
    ("app: Read-only on or off", "Key ctrl+r", "app.read_only"),
    ("app: Quit", "Leave; reading ends with it", "app.quit"),
)
"""What the command palette offers everywhere: a name, a hint, an action."""


class Requests(Protocol):
    """What a person can have done; each says what came of it."""

    def pin(self, row: Row, choice: Choice) -> None:
        """Ask, then let `choice` win for every later torch.compile."""

    def unpin(self, status: PinStatus) -> None:
        """Ask, then restore what the pin changed."""

    def undo(self) -> None:
        """Ask, then undo the last pin or unpin of this person."""

    def verify(self, status: PinStatus) -> None:
        """Put into the queue: does a compile really call the pinned choice?"""

    def verify_all(self, statuses: Sequence[PinStatus]) -> None:
        """The same of each of them."""

    def apply_pins(self, done: Callable[[], None]) -> None:
        """Make the caches agree with the pins again, then call `done`."""

    def tune(self, row: Row) -> None:
        """Ask what to try, then put the tuning of this problem into the queue."""

    def tune_missed(self, missed: Missed) -> None:
        """Ask, then put the tuning of what a log says that tables lacked into the queue."""

    def measure(self, row: Row, marked: AbstractSet[str]) -> None:
        """Put the measurement of the marked choices, else of those near the best, in the queue."""

    def measure_suspects(self, rows: Sequence[Row]) -> None:
        """Put the measurements of those whose times are not to be believed in the queue; asks
        where they are many."""

    def trial(self, row: Row, marked: AbstractSet[str]) -> None:
        """Show the graph, then put the trial of the marked choices in it into the queue."""

    def improve(self, graph: GraphRow) -> None:
        """Show the graph, then put the search for what makes it faster into the queue."""

    def prove(self, graph: GraphRow) -> None:
        """Ask, then put the comparison of stock processes, with its pins and without, in it too."""

    def pin_found(self, graph: GraphRow, search: Search) -> None:
        """Show the pins that a search proposes, then pin them."""

    def measure_peak(self, machine: TunedDevice) -> None:
        """Measure what `machine`, which must be this one, can do at best."""


class Host(App[int]):
    """What is watched, the jobs, and ways to ask for what a screen does not do itself.

    `python` is the interpreter for workers, `peaks` what machines were measured to do at best,
    `own_keys` the keys that a person chose, by id. `launched` is the program that was started with
    the screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        key("P", "open('pins')", "app.pins", "pins: state, history, undo"),
        key(
            "C",
            "open('report')",
            "app.report",
            "report: what tuning saves, ranks, backends, roofline",
        ),
        key("T", "open('trials')", "app.trials", "trials: graphs, what makes them faster, proof"),
        key(
            "L",
            "open('sessions')",
            "app.sessions",
            "sessions: processes, what each does, compare two",
        ),
        key("J", "open('jobs')", "app.jobs", "jobs: progress, results, logs"),
        key("E", "open('entries')", "app.entries", "entries of other tuners' tables, and finding"),
        key("O", "output", "app.output", "output of the program: below, all of it, away"),
        key("S", "open('sources')", "app.sources", "sources: what is read, how far"),
        key("question_mark,f1", "help", "app.help", "this help; esc goes back"),
        key("ctrl+r", "read_only", "app.read_only", "read-only on or off: no pin, no job"),
        key("ctrl+p", "command_palette", "app.palette", "every command that applies now"),
        key("q", "close", "app.close", "back; from Watch quit"),
        key("ctrl+c", "quit", "app.quit", "quit; asks where that ends jobs"),
    ]
    paths: list[str]
    missed: list[Missed]
    """What logs say that tuned tables lacked, as far as it was looked for."""
    layout: Layout
    python: str | None
    read_only: bool = False
    """Whether all that writes or starts work is refused."""
    peaks: dict[TunedDevice, Peak]
    own_keys: Mapping[str, str] = MappingProxyType({})
    launched: Launched | None = None

    programs: Programs
    """Whose output can be shown."""

    @property
    def memory(self) -> Memory:
        """What is remembered between two runs."""
        raise NotImplementedError

    @property
    def feed(self) -> Feed:
        """What fills the screens."""
        raise NotImplementedError

    @property
    def jobs(self) -> JobQueue:
        """The jobs that this program runs."""
        raise NotImplementedError

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that run or wait, newest first."""
        raise NotImplementedError

    def look_for_misses(self) -> None:
        """From now on, in what the logs that are watched say that tuned tables lacked."""
        raise NotImplementedError

    def count_troubles(self) -> int:
        """How many things could not be used of what is read, each once."""
        raise NotImplementedError

    @property
    def asking(self) -> bool:
        """Whether a question stands above the screens: there is never more than one."""
        return isinstance(self.screen, ModalScreen)

    def doing_facts(self) -> list[str]:
        """What a title says of the programs that work."""
        raise NotImplementedError

    def doing_lines(self, width: int, *, tail: bool) -> list[Line]:
        """The same for a screen that has nothing else to show; with the `tail` of its output."""
        raise NotImplementedError

    def call_from_any_thread(self, what: Callable[[], object]) -> None:
        """Run `what` on the event loop soon, without waiting for it; a signal handler may, too."""
        raise NotImplementedError

    # Said to the person.

    def copy(self, text: str, what: str) -> None:
        """Put `text` on the clipboard of the person's terminal and say what it was."""
        text = plain(text)
        self.copy_to_clipboard(text)
        self.notify(f"Copied {plain(what)}: {text}", markup=False, timeout=4)

    def refuse(self, why: str) -> None:
        """Say why something is not done."""
        self.notify(plain(why), severity="error", markup=False, timeout=8)

    def show_output(self, run: str) -> bool:
        """Show what the program of this run writes; False where no screen started it."""
        raise NotImplementedError

    def warn(self, what: str) -> None:
        """Say that a key does nothing here."""
        self.notify(what, severity="warning", markup=False)

    def did(self, command: str, outcome: str, *, ok: bool = True) -> None:
        """Say what came of an action, and log it with the command that does the same."""
        severity: SeverityLevel = "information" if ok else "warning"
        self.notify(plain(outcome), severity=severity, markup=False)
        self.log_done(command, outcome, ok=ok)

    def log_done(self, command: str, outcome: str, *, ok: bool = True) -> None:
        """Add it to the log of what was done from the screen."""
        raise NotImplementedError

    @property
    def shell(self) -> Shell:
        """Makes the command that does the same as an action."""
        raise NotImplementedError

    # Asked of the program. What is begun goes on when the screen that asked is left.

    @property
    def ask(self) -> Requests:
        """What it does when asked."""
        raise NotImplementedError

    def compare(self, row: Row, marked: AbstractSet[str]) -> None:
        """Open the marked choices, else those near the best, side by side."""
        raise NotImplementedError

    def compare_sessions(self, a: Named, b: Named) -> None:
        """Show what became slower from the sessions A to B, each a name and its processes' ids."""
        raise NotImplementedError

    def report_on(self, name: str, ids: Sequence[str]) -> None:
        """Show the report of these sessions alone."""
        raise NotImplementedError

    def show_filtered(self, text: str) -> None:
        """Go to Watch, with this filter."""
        raise NotImplementedError

    def read(self, row: Row, choice: Choice) -> None:
        """Open the source of a choice, and what compilers made of it."""
        raise NotImplementedError

    def show_history(self, row: Row) -> None:
        """Open what happened to the problem of this tuning, over the days."""
        raise NotImplementedError

    def show_row(self, row: Row) -> None:
        """Go to this tuning in Watch."""
        raise NotImplementedError

"""`BaseApp`, the part of the app that screens use, and `BaseScreen`, which all screens share."""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message_pump import MessagePump
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.timer import Timer, TimerCallback
from textual.widget import Widget
from textual.widgets import Button, Static

from backend.disk.layout import Layout
from backend.errors import StoreError
from rocm_tui.config.places import state_path
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.tui.key_order import KeysInOrder
from rocm_tui.tui.keys import PLACES, READ_ONLY, Key, footer_keys, key, own_key
from rocm_tui.tui.programs import Programs
from rocm_tui.tui.widgets.one_line import KeyBar, TitleBar

if TYPE_CHECKING:  # types only: the first screen stands before what they need is loaded
    from rocm_tui.actions.commands import ShellCommands
    from rocm_tui.actions.cover import Missed
    from rocm_tui.config.memory import Memory, Workspace
    from rocm_tui.jobs.queue import Job, JobQueue, Order
    from rocm_tui.launch.program import Launched
    from rocm_tui.session.feed import Feed

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")

SCREENS: Mapping[str, str] = {
    "compare": "compare.CompareScreen",
    "done": "jobs.DoneScreen",
    "entries": "entries.EntriesScreen",
    "help": "help.HelpScreen",
    "history": "history.HistoryScreen",
    "jobs": "jobs.JobsScreen",
    "output": "output.OutputScreen",
    "pins": "pins.PinsScreen",
    "report": "report.ReportScreen",
    "sessions": "sessions.SessionsScreen",
    "source": "source.SourceScreen",
    "sources": "sources.SourcesScreen",
    "trials": "trials.TrialsScreen",
}
"""The screens above Watch: module and class, imported when the screen is first opened."""


def load_screen(name: str) -> type[Screen[Any]]:
    """Import one of `SCREENS`."""
    module, _, screen = SCREENS[name].partition(".")
    loaded: type[Screen[Any]] = getattr(import_module(f"rocm_tui.tui.screens.{module}"), screen)
    return loaded


def after(pump: MessagePump, seconds: float, callback: Callable[[], object]) -> None:
    """Call `callback` once in the message loop of an app, a screen or a widget, unless that ends
    before. Unlike a timer of Textual it is never skipped; see `BaseApp.set_timer`.
    """

    def due() -> object:
        # A screen that ends still makes its calls once its widgets have gone.
        return callback() if pump.is_running and pump.is_attached else None

    asyncio.get_running_loop().call_later(seconds, pump.call_next, due)


class BaseApp(KeysInOrder):
    """The sources, the jobs, and the one way to start an action.

    `python` is the interpreter for workers, `own_keys` the keys that the person chose, by id,
    `missed` the products that tuned tables lack according to logs. `launched` is the program that
    was started with the screen. An app that starts `read_only` stays read-only.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        key("1", "open('watch')", "app.watch", "Watch: every tuning, as it happens",
            palette="view: Show tunings"),
        key("2", "open('compare')", "app.compare",
            "Compare: the choices of the tuning under the cursor, side by side",
            palette="view: Compare choices"),
        key("3", "open('pins')", "app.pins", "Pins: their state and history, undo",
            palette="view: Show pins"),
        key("4", "open('jobs')", "app.jobs", "Jobs: progress, results, logs",
            palette="view: Show jobs"),
        key("5", "open('report')", "app.report",
            "Report: what tuning saves, ranks, backends", palette="view: Show report"),
        key("6", "open('sessions')", "app.sessions",
            "Sessions: the processes that tuned, what each does", palette="view: Show sessions"),
        key("7", "open('sources')", "app.sources",
            "Sources: the files that are read, and their problems", palette="view: Show sources"),
        key("8", "open('trials')", "app.trials",
            "Trials: compiled graphs, what makes them faster, proof", palette="view: Show trials"),
        key("9", "open('entries')", "app.entries", "Entries of other tuners' tables, with search",
            palette="view: Show entries"),
        key("0", "output", "app.output",
            "Output of the program: below the table, then on the whole screen, then hidden",
            palette="view: Show output"),
        key("question_mark,f1", "help", "app.help", "this help; type to filter it, esc goes back",
            palette="view: Show help"),
        key("ctrl+r", "read_only", "app.read_only", "turn read-only on or off: no pin, no job",
            palette="app: Read-only on or off"),
        key("ctrl+p", "command_palette", "app.palette", "every command that applies now"),
        key("q", "close", "app.close", "back; from Watch quit"),
        key("ctrl+c", "quit", "app.quit", "quit; asks first if that ends jobs",
            palette="app: Quit"),
    ]  # fmt: skip

    def __init__(
        self,
        paths: Sequence[Path | str],
        layout: Layout,
        *,
        polling: bool,
        python: str | None,
        launched: Launched | None,
        read_only: bool,
    ) -> None:
        super().__init__()
        self.paths = [str(path) for path in paths] or [str(layout.root)]
        self.layout = layout
        self.python = python
        self.launched = launched
        self.programs = Programs(launched, layout)
        self.read_only = self.stays_read_only = read_only
        self.missed: list[Missed] = []
        self.own_keys: Mapping[str, str] = MappingProxyType({})
        self._polling = polling
        self._memory: Memory | None = None
        self._jobs: JobQueue | None = None
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._within: Context = copy_context()

    @property
    def memory(self) -> Memory:
        """The person's choices that outlive this run."""
        if self._memory is None:
            from rocm_tui.config.memory import Memory

            self._memory = Memory(state_path(), self.stays_read_only)
        return self._memory

    @property
    def workspace(self) -> Workspace:
        """The choices that outlive this run, for the watched sources."""
        return self.memory.workspace([*self.paths, str(self.layout.root)])

    @property
    def feed(self) -> Feed:
        """The model behind the screens; created after the first paint, or earlier by a key."""
        if self._feed is None:
            from rocm_tui.session.feed import Feed

            self._feed = Feed(self.paths, self.layout, self.wake, polling=self._polling)
            self._feed.reconciler.read_only = self.read_only
        return self._feed

    @property
    def jobs(self) -> JobQueue:
        """The jobs of this program."""
        if self._jobs is None:
            from rocm_tui.jobs.queue import JobQueue

            self._jobs = JobQueue(self.layout, self.wake, python=self.python)
        return self._jobs

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that run or wait, newest first."""
        jobs = self._jobs.jobs() if self._jobs is not None else []
        return [job for job in jobs if not job.over]

    @property
    def shell(self) -> ShellCommands:
        """Builds the command that is equivalent to an action."""
        from rocm_tui.actions.commands import ShellCommands

        return ShellCommands(self.layout, self.paths, self.python)

    @property
    def asking(self) -> bool:
        """Whether a question is open; only the one about leaving opens above another."""
        return isinstance(self.screen, ModalScreen)

    def wake(self) -> None:
        """Process the new records soon; may be called from any thread."""
        raise NotImplementedError

    def set_timer(
        self,
        delay: float,
        callback: TimerCallback | None = None,
        *,
        name: str | None = None,
        pause: bool = False,
    ) -> Timer:
        """Call a function once after `delay` seconds, also when the process was busy meanwhile.

        A timer of Textual 8.2 skips each turn whose time has passed. If the process loses the core
        for longer than the delay just as a one-shot timer begins, its only turn is skipped.
        Textual's app paints nothing after such a loss in `delay_update`, and ignores all further
        changes of the terminal's size after one in its resize timer.
        """
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False  # in time: its task has not begun yet
        return timer

    def on_load(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._within = copy_context()

    def call_from_any_thread(self, callback: Callable[[], object]) -> None:
        """Run `callback` on the event loop soon, without waiting for it; may be called from a
        signal handler too."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to show
                self._loop.call_soon_threadsafe(callback, context=self._within)

    def update_screens(self) -> None:
        """Update every screen."""
        for screen in self.screen_stack:
            if isinstance(screen, BaseScreen) and screen.has_widgets:
                screen.update()

    def open_screen(self, name: str, *args: object) -> None:
        """Open one of `SCREENS` above the current one."""
        screen: Callable[..., Screen[Any]] = load_screen(name)
        self.push_screen(screen(*args))

    # What writes or starts work.

    def act(
        self,
        action: Callable[Concatenate[BaseApp, _P], Coroutine[Any, Any, None]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> None:
        """Start an action that writes or starts work, unless the app is read-only.

        Every such action is started here and nowhere else. It is a worker of the app, so it
        continues when its screen is closed. Errors of ours become notices.
        """
        if self.read_only:
            self.refuse(READ_ONLY)
        else:
            self.run_worker(self._acting(action(self, *args, **kwargs)), group="actions")

    async def _acting(self, action: Coroutine[Any, Any, None]) -> None:
        try:
            await action
        except (RocmTuiError, StoreError, OSError) as error:
            self.refuse(str(error))
            self.feed.reconciler.poke()  # part of it may be done

    def queue(self, order: Order, command: str, doing: str = "") -> Job:
        """Queue the work of the equivalent `command`, with a notice: `Tuning mm: started`."""
        job = self.jobs.submit(replace(order, command=command))
        doing = doing or f"{job.kind.capitalize()} {job.title}"
        state = "waiting for its device" if job.state == "queued" else "started"
        self.notify(f"{doing}: {state} (4 Jobs)", markup=False, timeout=3)
        return job

    # Notices.

    def copy(self, text: str, what: str) -> None:
        """Put `text` on the clipboard of the person's terminal and say what it was."""
        text = plain(text)
        self.copy_to_clipboard(text)
        self.notify(f"Copied {plain(what)}: {text}", markup=False, timeout=4)

    def refuse(self, why: str) -> None:
        """Show a notice of why something is not done."""
        self.notify(plain(why), severity="error", markup=False, timeout=8)

    def warn(self, what: str) -> None:
        """Show a notice that a key does nothing here."""
        self.notify(what, severity="warning", markup=False)

    def did(self, command: str, outcome: str, *, ok: bool = True) -> None:
        """Report the outcome of an action, and log it with the equivalent command."""
        severity: SeverityLevel = "information" if ok else "warning"
        self.notify(plain(outcome), severity=severity, markup=False)
        self.log_done(command, outcome, ok=ok)

    def log_done(self, command: str, outcome: str, *, ok: bool = True) -> None:
        """Add it to the log of actions."""
        self.run_worker(self._log_done(command, outcome, ok), group="log")

    async def _log_done(self, command: str, outcome: str, ok: bool) -> None:
        from rocm_tui.actions.commands import record_command

        try:
            await to_thread(record_command, self.layout, command, outcome, ok)
        except (StoreError, OSError) as error:
            self.refuse(f"not logged: {error}")


SMALLEST = (60, 15)
_MORE: Key = ("?", "more", "app.help")
_TOO_SMALL = "Terminal too small.\nMake it at least {}×{}; everything goes on."


class _MountedScreen(Screen[_Answer]):
    """A screen that may be closed before it is mounted, as when the program is quit at once: then
    it lacks some of the widgets that it would set up, or all."""

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Mount) or self.display:
            await super().on_event(event)


class BaseScreen(_MountedScreen[None]):
    """A title line, a body and a line of keys; a sentence instead if the terminal is too small."""

    PLACE: ClassVar[str]
    """The name of the screen in the title line and the help."""
    LEAVE: ClassVar[Key] = ("esc q", "back", "app.close")
    _before: Widget | None = None
    """The widget that had the focus before the terminal became too small."""
    _reading = False
    """Whether a worker of `read_latest` is at work."""
    _outdated = False
    """Whether that worker has to read again."""

    @property
    def program(self) -> BaseApp:
        return cast(BaseApp, self.app)

    @property
    def has_widgets(self) -> bool:
        """Whether it is mounted and does not close."""
        return self.is_mounted and self.display

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title")
        with Vertical(id="body"):
            yield from self.compose_body()
        yield KeyBar(id="keys")

    def compose_body(self) -> ComposeResult:
        """The widgets between the title and the keys."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.sync_keys()

    def sync_keys(self) -> None:
        """Show the screen's keys that do something now."""
        if keys := footer_keys(type(self).BINDINGS):
            self.show_keys(key for key in keys if self.applies(key[2]))

    def applies(self, action: str) -> bool:
        """Return whether the key of this action does something now."""
        return True

    async def in_thread(
        self, work: Callable[_P, _Item], *args: _P.args, **kwargs: _P.kwargs
    ) -> _Item:
        """Wait for `work`, which runs in a thread; only for the screen's workers.

        Raises CancelledError if the screen was closed in the meantime: Textual removes its widgets
        one by one, and only then cancels its workers.
        """
        try:
            return await to_thread(work, *args, **kwargs)
        finally:
            if not self.display:
                raise asyncio.CancelledError

    def read_latest(self, read: Callable[[], Awaitable[None]], pause: float = 0.0) -> None:
        """Await `read`, and if this is called meanwhile, await it again `pause` seconds later.

        One read at a time: on a slow file system, updates must not restart it for ever.
        """
        self._outdated = True
        if not self._reading:
            self._reading = True
            self.run_worker(self._read_latest(read, pause))

    async def _read_latest(self, read: Callable[[], Awaitable[None]], pause: float) -> None:
        while self.display:  # a screen that closes has lost its widgets
            self._outdated = False
            await read()
            if not self._outdated:
                break
            await asyncio.sleep(pause)
        self._reading = False

    def require(self, item: _Item | None, name: str) -> _Item | None:
        """Return the item under the cursor, a `name`; if there is none, show a notice."""
        if item is None:
            self.program.warn(f"No {name} is under the cursor.")
        return item

    def update(self) -> None:
        """Show the current state: the model, the pins or the jobs may have changed."""

    def tick(self) -> None:
        """Time has passed."""

    def action_back(self) -> None:
        """Go back to the screen below this one."""
        self.app.pop_screen()

    def commands(self) -> Iterator[SystemCommand]:
        """Yield the palette commands that apply here now: those in the line of keys."""
        for name, label, action in self.query_one("#keys", KeyBar).keys:
            if not action.startswith("app."):
                run = partial(self.run_action, action)
                yield SystemCommand(f"here: {label.capitalize()}", f"Key {name}", run)

    def on_resize(self, event: events.Resize) -> None:
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        notices = self.query("#too-small")
        if small and not notices:
            self._before = self.focused  # hiding it takes the focus away
            notice = Static(_TOO_SMALL.format(*SMALLEST), id="too-small", markup=False)
            notice.styles.padding = (1, 2)
            self.mount(notice)
        elif not small:
            notices.remove()
        for widget in self.query("#title, #devices, #body, #keys"):
            if widget.display == small:  # setting it lays out and paints the whole screen
                widget.display = not small
        if notices and not small and self.focused is None:
            self.set_focus(self._before)

    def show_keys(self, keys: Iterable[Key]) -> None:
        """Show the keys that do something now, the most useful first, then back and help."""
        self.query_one("#keys", KeyBar).show(self._with_own_keys((*keys, self.LEAVE, _MORE)))

    def _with_own_keys(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        own = self.program.own_keys
        return tuple((own_key(self, do, own) or name, says, do) for name, says, do in keys)

    def show_title(self, facts: Sequence[str], notice: str = "") -> None:
        first_level = any(name == self.PLACE for _, name, _ in PLACES)
        places = self._with_own_keys(PLACES) if first_level else ()
        self.query_one("#title", TitleBar).show(self.PLACE, places, facts, notice)


class Dialog(_MountedScreen[_Answer | None], ModalScreen[_Answer | None]):
    """A question above the screens; the answer is None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [key("escape,q", "no", "question.no", "no")]

    def compose_answers(self, verb: str) -> ComposeResult:
        """The buttons below the question."""
        with Horizontal(id="answers"):
            yield Button(f"{verb}  enter", id="yes", compact=True)
            yield Button("Cancel  esc", id="no", compact=True)

    @on(Button.Pressed, "#no")
    def action_no(self) -> None:
        self.answer(None)

    def answer(self, given: _Answer | None) -> None:
        """Close with this answer. Keys may arrive in one burst: only the first answer counts."""
        if self.is_active:
            self.dismiss(given)

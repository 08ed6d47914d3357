"""How a command runs its jobs: in a warm worker, with a progress line, after a person agreed."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.graph import Graph
from backend.wire.jobs import Progress, WorkerJob
from rocm_tui import say
from rocm_tui.actions.trial import CapturedGraph, NotTried, accept, is_accepted, text_of
from rocm_tui.environment import device_env, find_python
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, Limits
from rocm_tui.jobs.run import RunJob, run_watched
from rocm_tui.jobs.warm import MOST, Workers
from rocm_tui.json_output import Document, encode
from rocm_tui.render.graphs import graph_title
from rocm_tui.render.jobs import progress_text
from rocm_tui.render.plot import bar
from rocm_tui.session.numbers import running, shorten

R = TypeVar("R")

_BAR = 10
_SECOND = 1.0
_WATCH = "reader of progress"
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class ProgressJson(Document, tag="rocm-tui/progress/1"):
    """A line about what a job does now."""

    title: str
    text: str


class LiveLine:
    """A line on stderr that overwrites itself, only on a terminal; an empty text clears it.

    It counts the seconds, so that a person sees progress, and estimates from the finished parts
    (see `part`) how long the others will take.
    """

    def __init__(self) -> None:
        self.title = ""
        self._live = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._text = ""
        self._began = self._first = time.monotonic()
        self._done = self._total = 0
        self._ticker: threading.Thread | None = None

    def show(self, text: str, share: float | None = None) -> None:
        """Show a text, after a bar if the finished `share` is known.

        Write it as a document where `ROCM_TUI_PROGRESS` names a descriptor.
        """
        if text and (descriptor := os.environ.get("ROCM_TUI_PROGRESS", "")).isdecimal():
            with contextlib.suppress(OverflowError):  # no descriptor has such a number
                with contextlib.suppress(OSError):
                    news = f"{encode(ProgressJson(self.title, text))}\n"
                    os.write(int(descriptor), news.encode())
                _end_with_reader(int(descriptor))
        if not self._live:
            return
        with self._lock:
            if not self._text:
                self._began = time.monotonic()
            self._text = text if share is None else f"{bar(share, _BAR)} {text}"
            self._write()
        if text and self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="clock", daemon=True)
            self._ticker.start()

    def part(self, done: int, total: int) -> None:
        """Record that `done` of `total` parts are finished."""
        if not done:
            self._first = time.monotonic()
        self._done, self._total = done, total

    @contextlib.contextmanager
    def during(self, title: str, text: str = "starting a worker") -> Iterator[None]:
        """Show what a job with this title does, until it is over.

        Raises JobError with the log of the worker in its line, for the job's own JobError.
        """
        self.title = title
        self.show(text)
        try:
            yield
        except JobError as error:
            raise JobError(with_log(error)) from error
        finally:
            self.show("")

    def progressed(self, progress: Progress) -> None:
        """Show how far a worker is."""
        self.show(progress_text(progress), _share(progress))

    def _tick(self) -> None:
        while True:
            time.sleep(_SECOND)
            with self._lock:
                if self._text:
                    self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the job's end is still ours
            width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
            say.overwrite(live_line(self.title, self._text, self._times(), width))

    def _times(self) -> str:
        """Return `12 s`, and how long the remaining parts will take."""
        now = time.monotonic()
        text = running(now - self._began)
        if self._done and self._total > self._done:
            left = (now - self._first) / self._done * (self._total - self._done)
            text += f", about {running(left)} to go"
        return text


def live_line(title: str, text: str, times: str, width: int) -> str:
    """Return a line of `width` cells; the times at its end are never cut. Empty without text."""
    if not text:
        return ""
    room = max(20, width - len(times) - 3)
    return f"{shorten(plain(f'{title}: {text}'), room)} · {times}"


def _end_with_reader(descriptor: int) -> None:
    """End this command, once, when nobody reads its progress any more.

    Whoever started it may be killed while a job compiles for minutes and reports nothing.
    """

    def wait() -> None:
        ends = select.poll()
        ends.register(descriptor, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in ends.poll()):
            os.kill(os.getpid(), signal.SIGTERM)

    if not any(thread.name == _WATCH for thread in threading.enumerate()):
        threading.Thread(target=wait, name=_WATCH, daemon=True).start()


def _share(progress: Progress) -> float | None:
    """Return the finished share, if parts are counted."""
    if progress.total:
        return (progress.timed or progress.compiled) / progress.total
    if progress.choices > 1:
        return min(1.0, progress.settled / (progress.choices - 1))
    return None


class Work:
    """Does jobs, like a `RunJob`, in a warm worker, or without `warm` each in a new worker.

    SIGTERM and a lost terminal end it as Ctrl-C does: the session's log gets its end, and no
    process is left.
    """

    def __init__(
        self, layout: Layout, python: str | None, device: str | None, *, warm: bool = True
    ) -> None:
        """Raises UsageError and NoTorchPython."""
        self.line = LiveLine()
        self._layout = layout
        self._env = device_env(os.environ, device)
        self._python = find_python(python, self._env)
        self._limits = Limits.of_this_machine()
        self._workers = Workers(layout.root, most=MOST if warm else 0)
        atexit.register(self._workers.end)

    def __call__(self, job: WorkerJob[R]) -> R:
        """Raises JobError."""
        return self._do(job, self._layout, self._workers)

    def at(self, layout: Layout) -> RunJob:
        """Return a `RunJob` for another cache dir, with a new worker for each job."""

        def run(job: WorkerJob[R]) -> R:
            return self._do(job, layout, None)

        return run

    def _do(self, job: WorkerJob[R], layout: Layout, workers: Workers | None) -> R:
        with ended_by_signals():
            return run_watched(
                job,
                python=self._python,
                layout=layout,
                env=self._env,
                limits=self._limits,
                on_progress=self.line.progressed,
                workers=workers,
            )


def with_log(error: RocmTuiError) -> str:
    """Return the line of an error, with the log of its worker."""
    log = getattr(error, "log", None)
    return f"{error}; the end of its log: {log}" if log else str(error)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit at signals that end us; an ignored signal (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in old.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def consent(layout: Layout, graph: Graph, yes: bool, *, dry_run: bool = False) -> list[str]:
    """Let the text of a graph run if a person agrees. Raises NotTried.

    A dry run accepts nothing. Return what a person should know before: nothing of a text that they
    accepted.
    """
    text = text_of(layout, graph.id)
    if is_accepted(layout, text):
        return []
    lines = about(graph, text)
    if not dry_run:
        say.err(*lines)
    if not yes:
        if dry_run or not sys.stdin.isatty():
            raise NotTried(f"look at {text.path}, then run it with --yes")
        if not asked("run it? [y/N] "):
            raise NotTried("not run")
    if not dry_run:
        accept(layout, text)
    return lines


def about(graph: Graph, text: CapturedGraph) -> list[str]:
    """Describe a graph's text before it runs for the first time."""
    size = [counted(graph.nodes, "op")] if graph.nodes else []
    facts = ", ".join([graph_title(graph), *size, f"{counted(len(text.lines), 'line')} of text"])
    return [f"{facts}, never run before:", plain(str(text.path))]


def asked(question: str) -> bool:
    say.ask(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

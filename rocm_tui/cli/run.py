"""`rocm-tui run -- CMD...`: run a program, record its tunings, honour its pins."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.inductor.hooks.environment import rank
from backend.model.session import ActivityState
from backend.ranks import job
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.config.settings import config
from rocm_tui.errors import UsageError
from rocm_tui.launch.records import read_records
from rocm_tui.launch.run import FinishedRun, MakeLine, RunOptions, run
from rocm_tui.search.options import compile_option
from rocm_tui.session.numbers import running, shorten

if TYPE_CHECKING:
    from rocm_tui.ingest.follow.tailer import Tailer

SECONDS = 2.0
"""How long a kernel is measured at most."""


@click.command(context_settings={"allow_interspersed_args": False})
@common.flag("--quiet", "Hide AUTOTUNE tables.")
@common.max_autotune_option
@common.flag("--templates", "Offer our ROCm templates to Inductor.")
@common.repeatable(
    "--option",
    metavar="NAME=VALUE",
    help="Compile CMD with this option of Inductor, whatever CMD sets",
)
@common.flag("--check", "Reject choices whose results are further off than rounding explains.")
@common.flag("--no-shares", "Do not record calls and times of compiled graphs.")
@common.flag("--capture", "Keep the text of each compiled graph, for `trial` and `improve`.")
@common.flag(
    "--cache-triton",
    "Keep the times of @triton.autotune (TRITON_CACHE_AUTOTUNING=1), to watch and pin.",
)
@click.option(
    "--agree/--no-agree",
    default=None,
    help="Let one rank of a job tune a problem, and the others take its choice.",
)
@common.seconds(
    "--agree-timeout", "Wait this long for another rank, then tune alone", f"{job.SECONDS:g}"
)
@click.option(
    "--agree-dir",
    type=common.FOLDER,
    metavar="DIR",
    help="Use this folder, which all hosts of the job share; one host needs none.",
)
@common.flag("--all-devices", "Tune once for all GPUs of a kind; implies --agree.")
@click.option(
    "--measure-kernels",
    is_flag=False,
    flag_value=SECONDS,
    type=float,
    default=0.0,
    metavar="[SECONDS]",
    help=f"Measure the configs of each Triton kernel that CMD tunes (default: {SECONDS:g} s each).",
)
@click.option("--id", metavar="NAME", hidden=True)  # `watch -- CMD` names it
@click.option("--no-summary", is_flag=True, hidden=True)  # Watch shows what was recorded
@common.cache_dir_option
@click.argument("argv", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def run_command(
    argv: Sequence[str],
    option: Sequence[str],
    no_shares: bool,
    no_summary: bool,
    agree: bool | None,
    agree_timeout: float | None,
    **given: Any,
) -> int:
    """Run CMD unchanged, record its tunings, and honour its pins.

    At the end, three lines say what was recorded, what is worth a look, and which command comes
    next. The exit code is that of CMD.

    Example: rocm-tui run -- python train.py
    """
    if not argv:
        raise UsageError("run needs a command: rocm-tui run -- python train.py")
    options = RunOptions(
        **given,
        shares=not no_shares,
        summary=not no_summary,
        options=[compile_option(text) for text in option],
    )
    if options.capture and no_shares:
        raise UsageError("--capture records graphs, --no-shares does not: take one of them")
    if not 0 <= options.measure_kernels <= 3600:
        raise UsageError("--measure-kernels takes seconds for one kernel, 3600 at most")
    _migrate(common.layout_at(options.cache_dir))
    if agree is None and (agree_timeout is not None or options.agree_dir or options.all_devices):
        agree = True
    options = replace(options, agree=_seconds_to_agree(agree, agree_timeout))
    make_line: MakeLine = (lambda layout, run: None) if options.quiet else run_line
    return run(argv, options, make_line=make_line, report=_report)


def _report(run: FinishedRun) -> Sequence[str]:
    """Return the three closing lines, or none where stderr must stay exactly the program's.

    That is so where stderr is no terminal and no hook was loaded, or a rank above 0 writes.
    """
    if not run.options.summary:
        return ()
    records = read_records(run)
    hooked = bool(records.sessions or records.kept) and not rank(run.env)
    if not (run.terminal or run.options.quiet or hooked):
        return ()
    from rocm_tui.cli.run_report import closing_lines  # takes 0.3 s to load

    return closing_lines(run, records)


def _seconds_to_agree(wanted: bool | None, seconds: float | None) -> float | None:
    """Return how long a rank waits for another: 0 if ranks do not agree, None if unspecified."""
    if seconds is not None and not 0 < seconds <= job.MOST_SECONDS:
        raise UsageError(f"--agree-timeout: more than 0 and at most {job.MOST_SECONDS:g} seconds")
    if wanted is None or (wanted and seconds is None):
        common.report_settings()
        settings = config().run
        wanted = settings.agree or None if wanted is None else wanted
        seconds = settings.agree_timeout if seconds is None else seconds
    if not wanted:
        return None if wanted is None else 0.0
    return seconds or job.SECONDS


def _migrate(layout: Layout) -> None:
    """Migrate pins of older versions, which break programs that do not offer the pinned choice."""
    if not layout.pins.exists():
        return
    # Every program that is run waits for this: the store is loaded only where something is pinned.
    from backend.pins.store import PinStore

    try:
        PinStore(layout).migrate()
    except StoreError as error:
        say.err(f"pins of an older version are left as they are: {error}")


BUSY: frozenset[ActivityState] = frozenset(
    ("importing", "compiling", "precompiling", "tuning", "waiting")
)
EVERY = 1.0
"""Seconds between two looks at the logs of the run."""
LONG, LEAST, MOST = 4.0, 15.0, 120.0
"""Seconds that a state must last to be printed in a whole line; least and most between two."""
_QUIET = 2.0
"""Seconds since the program wrote to stderr."""


class Calm:
    """Decide when a whole line may be printed: pauses double while states change."""

    def __init__(self) -> None:
        self._state: object = None
        self._since = self._next = 0.0
        self._pause = LEAST

    def due(self, state: object, now: float) -> bool:
        """Return whether to print `state` now; it is None while nothing takes long."""
        if state != self._state:
            self._state, self._since = state, now
        if state is None or now - self._since < LONG or now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(MOST, 2 * self._pause)
        return True


class RunLine:
    """A line on the terminal that shows what a program under `run` is doing.

    Where its stdout goes elsewhere the line is rewritten in place, and cleared before the program
    writes: all of its stderr passes through us. Where both share the terminal we do not see what it
    prints, and a rewritten line would end up among it; so a whole line is printed, seldom, only of
    what takes long, and only while the program is quiet.

    Call `look` now and then, `wrote` before each piece that the program writes to stderr.
    """

    def __init__(self, layout: Layout, run: str, *, rewrite: bool) -> None:
        from rocm_tui.session.model import Model  # a program without a terminal needs no line

        self._folder = layout.sessions
        self._run = run
        self._rewrite = rewrite
        self._model = Model()
        self._tailers: dict[str, Tailer | None] = {}
        self._began = time.time()
        self._due = self._wrote = 0.0
        self._calm = Calm()
        self._shown = ""
        self._at_start = True

    def look(self) -> None:
        """Show what the program does now, if it is time to."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY
        self._read()
        state, text = self._doing()
        if self._rewrite:
            if self._at_start:
                self._show(text)
        elif now - self._wrote > _QUIET and self._at_start and self._calm.due(state, now):
            say.begin_line()
            with contextlib.suppress(OSError, ValueError):
                say.err(text, flush=True)

    def wrote(self, data: bytes) -> None:
        """Clear the line before the program writes."""
        self._show("")
        self._wrote, self._at_start = time.monotonic(), data.endswith(b"\n")

    def clear(self) -> None:
        """Clear the line at the end of the program."""
        self._show("")

    def _show(self, text: str) -> None:
        if text == self._shown:
            return
        self._shown = text
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(2).columns or 80
            say.overwrite(shorten(text and f"rocm-tui: {text}", width - 1))

    def _doing(self) -> tuple[str | None, str]:
        """Return the state that takes long now, and its text; None and ``""`` for none."""
        busy = [
            process.activity
            for process in self._model.processes.live
            if process.activity.state in BUSY
        ]
        if not busy:
            return None, ""
        from rocm_tui.render.sessions import state_text

        first = busy[0]
        if len(busy) > 1:
            counts = Counter(activity.state for activity in busy)
            each = ", ".join(f"{count} {state}" for state, count in counts.items())
            return first.state, f"{len(busy)} processes: {each}"
        since = "" if first.since is None else f" · {running(max(0.0, time.time() - first.since))}"
        return first.state, state_text(first) + since

    def _read(self) -> None:
        from rocm_tui.ingest.follow.tailer import Tailer

        for path in self._logs():
            if path not in self._tailers:
                self._tailers[path] = Tailer(path) if self._is_ours(path) else None
            tailer = self._tailers[path]
            if tailer is not None:
                self._model.put(tailer.poll())

    def _logs(self) -> Iterator[str]:
        """Yield the logs that may belong to this run: the ones being read, and newer ones."""
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl") and (
                        entry.path in self._tailers or entry.stat().st_mtime >= self._began - 1
                    ):
                        yield entry.path
        except OSError:
            return  # not there yet, or gone again

    def _is_ours(self, path: str) -> bool:
        with contextlib.suppress(OSError), Path(path).open("rb") as stream:
            return self._run.encode() in stream.readline(1 << 16)
        return False


def run_line(layout: Layout, run: str) -> RunLine | None:
    """Return the status line of a run; None unless stderr is a terminal that takes commands."""
    if not os.isatty(2) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    stdout = sys.__stdout__
    return RunLine(layout, run, rewrite=stdout is None or not stdout.isatty())

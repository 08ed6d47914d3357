"""`rocm-tui run -- CMD...`: run a program, record its tunings, honour its pins."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.session import ActivityState
from backend.ranks import job
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.config.settings import config
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.launch.run import MakeLine, RunOptions, run
from rocm_tui.session.numbers import running, shorten

if TYPE_CHECKING:
    from rocm_tui.ingest.follow.tailer import Tailer

SECONDS = 2.0
"""For which a kernel is measured, unless it is clear before."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--quiet", is_flag=True, help="Hide AUTOTUNE tables.")
@common.max_autotune_option
@click.option("--templates", is_flag=True, help="Offer our ROCm templates to Inductor.")
@click.option(
    "--check",
    is_flag=True,
    help="Reject choices whose results are further off than rounding explains.",
)
@click.option("--no-shares", is_flag=True, help="Do not record calls and times of compiled graphs.")
@click.option(
    "--capture",
    is_flag=True,
    help="Keep the text of each compiled graph, for `trial` and `improve`.",
)
@click.option(
    "--cache-triton",
    is_flag=True,
    help="Keep the times of @triton.autotune (TRITON_CACHE_AUTOTUNING=1), to watch and pin.",
)
@click.option(
    "--agree/--no-agree",
    default=None,
    help="In a job of several ranks: one tunes a problem, the others take its choice.",
)
@click.option(
    "--agree-timeout",
    type=float,
    metavar="SECONDS",
    help=f"A rank waits this long for another, then tunes alone (default: {job.SECONDS:g}).",
)
@click.option(
    "--agree-dir",
    type=common.FOLDER,
    metavar="DIR",
    help="A folder that all hosts of this job share; one host needs none.",
)
@click.option(
    "--all-devices",
    is_flag=True,
    help="Tune once for all GPUs of a kind; implies --agree.",
)
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
@common.cache_dir_option
@click.argument("argv", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def run_command(
    argv: Sequence[str],
    quiet: bool,
    max_autotune: bool,
    templates: bool,
    check: bool,
    no_shares: bool,
    capture: bool,
    cache_triton: bool,
    agree: bool | None,
    agree_timeout: float | None,
    agree_dir: Path | None,
    all_devices: bool,
    measure_kernels: float,
    id: str | None,
    cache_dir: Path | None,
) -> int:
    """Run CMD unchanged with our hooks in its torch.compile. The exit code is its own."""
    if not argv:
        raise UsageError("run needs a command: rocm-tui run -- python train.py")
    if capture and no_shares:
        raise UsageError("--capture records graphs, --no-shares does not: take one of them")
    if not 0 <= measure_kernels <= 3600:
        raise UsageError("--measure-kernels takes seconds for one kernel, 3600 at most")
    _migrate(common.layout_at(cache_dir))
    implied = agree_timeout is not None or agree_dir is not None or all_devices
    options = RunOptions(
        quiet=quiet,
        max_autotune=max_autotune,
        templates=templates,
        check=check,
        shares=not no_shares,
        capture=capture,
        cache_triton=cache_triton,
        agree=_seconds_to_agree(True if agree is None and implied else agree, agree_timeout),
        agree_dir=agree_dir,
        all_devices=all_devices,
        measure_kernels=measure_kernels,
        cache_dir=cache_dir,
        id=id,
    )
    make_line: MakeLine = (lambda layout, run: None) if quiet else run_line
    return run(argv, options, make_line=make_line, tell_ranks=_differences)


def _differences(layout: Layout, run: str, logs: Sequence[Path]) -> str:
    """That ranks which should agree do not, also those of their job under other runs."""
    from rocm_tui.actions.agree import agreement_in  # few runs have ranks
    from rocm_tui.render.agree import differing_line

    try:
        return differing_line(agreement_in(layout, logs, run), run)
    except (RocmTuiError, StoreError, OSError) as error:  # the program's exit code matters more
        return f"its ranks were not compared: {error}"


def _seconds_to_agree(wanted: bool | None, seconds: float | None) -> float | None:
    """Return how long a rank waits for another: 0 if ranks do not agree, None if unspecified."""
    if seconds is not None and not 0 < seconds <= job.MOST_SECONDS:
        raise UsageError(f"--agree-timeout: more than 0 and at most {job.MOST_SECONDS:g} seconds")
    if wanted is None or (wanted and seconds is None):
        settings = config().run
        wanted = settings.agree or None if wanted is None else wanted
        seconds = settings.agree_timeout if seconds is None else seconds
    if not wanted:
        return None if wanted is None else 0.0
    return seconds or job.SECONDS


def _migrate(layout: Layout) -> None:
    """A pin of an older version breaks programs that do not offer its choice: not this one."""
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
    """Decide when a whole line may be printed: pauses double as long as there is news."""

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
    """What a program under `run` is doing, in a line on the terminal that its stderr goes to.

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
        """Say what the program does now, if it is time to."""
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
            with contextlib.suppress(OSError, ValueError):
                say.err(text, flush=True)

    def wrote(self, data: bytes) -> None:
        """The program's own comes first."""
        self._show("")
        self._wrote, self._at_start = time.monotonic(), data.endswith(b"\n")

    def clear(self) -> None:
        """The program has ended."""
        self._show("")

    def _show(self, text: str) -> None:
        if text == self._shown:
            return
        self._shown = text
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(2).columns or 80
            say.overwrite(shorten(text and f"rocm-tui: {text}", width - 1))

    def _doing(self) -> tuple[str | None, str]:
        """What takes long now; None and nothing where nothing does."""
        busy = [one.activity for one in self._model.processes.live if one.activity.state in BUSY]
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
        """The logs that may be of this run: known ones, and those that have come since it began."""
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

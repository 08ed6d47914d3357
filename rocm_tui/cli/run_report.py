"""The three lines at the end of `rocm-tui run`: what was recorded, what is worth a look, and the
next command.

They report only what was seen: events of the run's own sessions, and the model of the cache
directory, where that is small enough to read while a person waits for the prompt.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.ranks.job import AGREE
from rocm_tui.actions.agree import agreement_in
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.sources import load_model
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.launch.records import RunRecords
from rocm_tui.launch.run import FinishedRun
from rocm_tui.render.agree import differing_text
from rocm_tui.render.jobs import problem_title
from rocm_tui.session import numbers, stats
from rocm_tui.session.model import Row

MOST_BYTES = 32 << 20
"""Beyond this size of the cache directory's logs and times, only the run's own logs are read."""
ONE_CHOICE = "one choice each: nothing to tune"
_LONGEST_COMMAND = 200


@dataclass(frozen=True, slots=True)
class Advice:
    """What is worth a look, and the command that looks at it."""

    text: str
    command: str


def closing_lines(run: FinishedRun, records: RunRecords) -> Sequence[str]:
    """Return the three lines for a run that recorded `records`."""
    advice = _advice(run, records)
    return (
        _recorded_line(run, records),
        f"worth a look: {advice.text}" if advice.text else ONE_CHOICE,
        f"next: {advice.command}",
    )


def _recorded_line(run: FinishedRun, records: RunRecords) -> str:
    """`2 tunings recorded in DIR, with 1 compiled graph`, or why nothing was recorded."""
    if records.nothing:
        here = " here" if records.moved_to else ""
        return f"nothing was recorded{here}: {_why_nothing(run, records)}"
    text = f"{counted(records.tunings, 'tuning')} recorded in {plain(str(run.layout.sessions))}"
    more = [counted(records.graphs, "compiled graph")] if records.graphs else []
    if records.kept:
        more.append(f"{counted(records.kept, 'tuning')} of @triton.autotune kept")
    if records.measured:
        more.append(f"{counted(records.measured, 'Triton kernel')} measured in the program")
    text += f", with {' and '.join(more)}" if more else ""
    return f"{text}, then no more: {plain(records.unhooked)}" if records.unhooked else text


def _why_nothing(run: FinishedRun, records: RunRecords) -> str:
    if records.unhooked:
        return plain(records.unhooked)
    if records.moved_to:
        return f"the program set TORCHINDUCTOR_CACHE_DIR to {plain(records.moved_to)}"
    if records.sessions:
        tuned = "tuned" if run.options.shares else "tuned (graphs are not recorded: --no-shares)"
        return f"torch was imported, and no torch.compile {tuned} or compiled a graph"
    if run.forbidden:
        return run.forbidden
    if records.torch:
        return "torch was imported, and our hooks did not start in it"
    return "no process was seen to import torch with our hooks"


def _advice(run: FinishedRun, records: RunRecords) -> Advice:
    """Choose the one finding that matters most, and the command for it."""
    commands = ShellCommands(run.layout)
    try:
        return (
            _of_nothing(run, records, commands)
            or _of_ranks(run, records, commands)
            or _of_untuned(run, records)
            or _of_rows(run, records, commands)
        )
    except (RocmTuiError, StoreError, OSError) as error:  # the program's exit code matters more
        return Advice(f"the results could not be read: {plain(str(error))}", commands.line("ls"))


def _of_nothing(run: FinishedRun, records: RunRecords, commands: ShellCommands) -> Advice | None:
    if records.unhooked:
        return Advice("whether the hooks work in this Python", commands.line("doctor"))
    if not records.nothing:
        return None
    if run.options.measure_kernels:
        return Advice(NO_KERNEL, _again(run, "--cache-dir", "NEW"))
    if run.status:
        return Advice(f"the program {_ended(run.status)}", commands.line("sessions"))
    if records.moved_to:
        there = ShellCommands(Layout(Path(records.moved_to)))
        return Advice("what is recorded there", there.line("ls"))
    if records.sessions:
        return Advice("whether the program reaches torch.compile", commands.line("sessions"))
    return Advice(
        "whether the program imports torch, in a Python that has our hooks",
        commands.line("doctor", *_python_of(run.command)),
    )


NO_KERNEL = (
    "no Triton kernel was measured, since none was tuned among several configs; results of an "
    "earlier run come from caches"
)


def _ended(status: int) -> str:
    """How a program ended: by its exit code, or by minus a signal."""
    if status > 0:
        return f"ended with exit code {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _python_of(command: Sequence[str]) -> list[str]:
    """Return `--python EXE` if the command begins with a Python, which is the one to check."""
    name = Path(command[0]).name
    return ["--python", command[0]] if name.startswith("python") else []


def _of_ranks(run: FinishedRun, records: RunRecords, commands: ShellCommands) -> Advice | None:
    """Report ranks that should agree and do not, also ranks of their job under other runs."""
    logs = (*records.ranks, *records.others)
    if run.env.get(AGREE, "0") == "0" or not records.ranks or len(logs) < 2:
        return None
    text = differing_text(agreement_in(run.layout, logs, run.id))
    return Advice(text, commands.line("agree", "--run", run.id)) if text else None


def _of_untuned(run: FinishedRun, records: RunRecords) -> Advice | None:
    if records.tunings or records.kept or not records.untuned:
        return None
    which = "them" if records.graphs > 1 else "it"
    return Advice(f"max_autotune was off for {which}", _again(run, "--max-autotune"))


def _again(run: FinishedRun, *options: str) -> str:
    """Return the command that runs the program again with more options."""
    where = [] if run.options.cache_dir is None else ["--cache-dir", str(run.options.cache_dir)]
    program = plain(shlex.join(run.command))
    if len(program) > _LONGEST_COMMAND or "\n" in shlex.join(run.command):
        program = "CMD"
    words = ["rocm-tui", "run", *(where if "--cache-dir" not in options else ()), *options]
    return f"{plain(shlex.join(words))} -- {program}"


def _of_rows(run: FinishedRun, records: RunRecords, commands: ShellCommands) -> Advice:
    """Choose among the tunings: unfinished, doubtful, undecided, pinned, or nothing to tune."""
    rows = _rows(run, records)
    open_rows = [row for row in rows if row.tuning.state != "done"]
    if open_rows:
        count = counted(len(open_rows), "tuning")
        example = problem_title(open_rows[0].tuning)
        return Advice(f"{count} did not finish: {example}", commands.line("show", open_rows[0].id))
    suspects = [row for row in rows if row.suspect]
    if suspects:
        count = counted(len(suspects), "tuning")
        text = f"times that cannot be right in {count}, such as {_title(suspects)}"
        return Advice(text, commands.line("measure", "--suspects"))
    free = [row for row in rows if row.pin is None and row.tuning.measured is None]
    undecided = [row for row in free if stats.standing(row.tuning) in ("tied", "unclear")]
    ahead = [row for row in free if stats.standing(row.tuning) == "ahead"]
    if alike := undecided or ahead:
        row = max(alike, key=_weight)
        best, rival = (plain(choice.label) for choice in stats.ranked(row.tuning)[:2])
        over = stats.lead(row.tuning)
        by = "" if over is None else f" by {numbers.percent(over)}"
        how = (
            f"is ahead of {rival}{by}" if not undecided else f"and {rival} are too close to compare"
        )
        text = f"{_title([row])}: {best} {how} (one timing each){_and_more(alike)}"
        return Advice(text, commands.line("measure", row.id))
    if records.untuned:
        text = f"max_autotune was off for {records.untuned} of {counted(records.graphs, 'graph')}"
        return Advice(text, _again(run, "--max-autotune"))
    if any(row.pin for row in rows):
        return Advice("whether the pins are used", commands.line("verify"))
    if rows and all(stats.single(row.tuning) for row in rows):
        return Advice("", commands.line("graphs" if records.graphs else "ls"))
    if records.selected_by == {"cache"}:
        return Advice("all choices came from the cache, so nothing was timed", commands.line("ls"))
    if not records.tunings and records.graphs:
        text = "no op of the compiled graphs was tuned"
        if records.warm:
            loaded = counted(records.warm, "compiled graph")
            text = f"Inductor loaded {loaded} from its cache, which tunes nothing again"
        return Advice(text, commands.line("graphs"))
    return Advice("which choice each tuning took", commands.line("ls"))


def _rows(run: FinishedRun, records: RunRecords) -> list[Row]:
    """Return the tunings of this run, with pins and measurements if the cache dir is small."""
    layout = run.layout
    whole = [layout.sessions, layout.autotune]
    small = sum(_size(path) for folder in whole for path in folder.rglob("*")) <= MOST_BYTES
    paths = [path for path in whole if path.is_dir()] if small else records.logs
    model = load_model(layout, [str(path) for path in paths])
    ours = set(records.sessions)
    return [row for row in model.listed() if ours.intersection(row.asked)]


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _weight(row: Row) -> tuple[float, float]:
    """Order rows by their share of the program's time, then by the time of a call."""
    share = row.share.share if row.share is not None else None
    return share or 0.0, stats.time_ms(row.tuning, stats.winner(row.tuning)) or 0.0


def _title(rows: Sequence[Row]) -> str:
    return f"{problem_title(rows[0].tuning)} ({rows[0].id})"


def _and_more(rows: Sequence[Row]) -> str:
    more = len(rows) - 1
    return f"; {counted(more, 'more tuning')} like it" if more else ""

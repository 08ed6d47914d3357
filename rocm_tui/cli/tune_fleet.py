"""`rocm-tui tune --fleet`: tune on many devices, into one cache."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence

from backend.counted import counted
from backend.disk.layout import Layout
from backend.toolchain.target import amdgpu
from backend.wire.jobs import Gpu
from rocm_tui import say
from rocm_tui.actions.fleet import Asked, Run, Wanted, compile_only, units_of
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.cli.work import LiveLine, ended_by_signals
from rocm_tui.errors import UsageError
from rocm_tui.fleet.messages import Unit
from rocm_tui.harmless import plain
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.render.fleets import agents_json, line_of_run, outcome, run_json, units_json

_EVERY = 30.0
"""Seconds between two lines of progress where stderr is no terminal."""


def tune_on_fleet(
    args: CommandArguments,
    layout: Layout,
    options: TuneOptions,
    problems: Callable[[], Sequence[Asked]],
) -> int:
    """Raises UsageError, RocmTuiErrors and StoreErrors."""
    if args.device is not None:
        raise UsageError("--device goes without --fleet: a fleet's words say its devices")
    if args.repeat < 1:
        raise UsageError("--repeat is a number of devices, 1 or more")
    if args.split is not None and not 0 < args.split < math.inf:
        raise UsageError("--split is a number of seconds above 0")
    wanted = Wanted(
        fleet=tuple(args.fleet),
        repeat=args.repeat,
        canary=args.canary,
        device_class=args.device_class,
        python=args.python,
        command=tuple(sys.argv),
    )
    if args.resume is not None:
        if args.words or args.from_log or args.all or args.split is not None:
            raise UsageError("--resume goes on with what the run was to tune; name no more")
        run = Run.resume(layout, wanted, args.resume or None)
    else:
        units = units_of(problems(), options, args.split)
        _tell_unsplit(units, args.split)
        if args.dry_run or not units:
            return _list(units, args.json)
        if args.compile_only is not None:
            return _compile(layout, wanted, units, _gpu(args.compile_only), args.json)
        run = Run.begin(layout, wanted, units)
    with run, ended_by_signals():
        _work(run)
        return _report(run, args.json)


def _gpu(text: str) -> Gpu:
    """`gfx942`, `gfx942:228`. Raises UsageError."""
    arch, _, units = text.partition(":")
    try:
        known = amdgpu(arch).known
    except ValueError:
        known = None
    many = int(units) if units.isascii() and units.isdecimal() else 0
    if known is not None and not units:
        many = known.compute_units
    if known is None or not many:
        raise UsageError(
            f"--compile-only takes an AMD GPU and its compute units, as gfx942:304, not {text}"
        )
    return Gpu(arch, many)


def _compile(layout: Layout, wanted: Wanted, units: Sequence[Unit], gpu: Gpu, as_json: bool) -> int:
    with ended_by_signals():
        ahead = compile_only(layout.root, wanted, units, gpu, lambda text: say.err(plain(text)))
    total, why = ahead.total, dict(ahead.reasons)
    why |= dict.fromkeys(ahead.left, "no agent was left to compile it")
    if as_json:
        counts = {"compiled": total.compiled, "found": total.found, "failed": total.failed}
        say.out_json({**counts, "not_compiled": why})
    else:
        failed = f", {total.failed} failed" if total.failed else ""
        compiled = counted(total.compiled, "choice")
        say.out(f"{compiled} compiled for {gpu.arch}, {total.found} found{failed}")
    for title, reason in why.items():
        say.err(plain(f"{title}: {reason}"))
    return ExitCode.of(not why and total.compiled + total.found > 0)


def _tell_unsplit(units: Sequence[Unit], split: float | None) -> None:
    for unit in units:
        if split is not None and unit.weight > split and not (unit.after or unit.part_of):
            say.err(
                plain(
                    f"{unit.title} is tuned on one device: it may take {unit.weight:.0f} s, but "
                    "too few of its choices are known by their hashes to split it"
                )
            )


def _list(units: Sequence[Unit], as_json: bool) -> int:
    if as_json:
        told = [
            {"unit": u.id, "title": u.title, "weight": u.weight, "calls": u.calls} for u in units
        ]
        say.out_json({"units": told})
    for unit in () if as_json else units:
        say.out(plain(f"{unit.id}  {unit.title}  about {unit.weight:.0f} s"))
    return ExitCode.of(bool(units))


def _work(run: Run) -> None:
    line = LiveLine(f"run {run.name}")
    said = [time.monotonic()]

    def look() -> None:
        text = line_of_run(run.standing, time.time())
        line.show(text)
        if not sys.stderr.isatty() and time.monotonic() - said[0] >= _EVERY:
            said[0] = time.monotonic()
            say.err(text)

    def tell(text: str) -> None:
        line.show("")
        say.err(plain(text))

    def opened() -> None:
        tell(f"run {run.name}: {run.summary}")

    line.show(plain(f"asking {', '.join(run.fleet)} for devices"))
    try:
        run.work(tell=tell, look=look, opened=opened)
    except (KeyboardInterrupt, SystemExit):
        line.show("")
        say.err(f"ended; go on with: rocm-tui tune --resume {run.name}")
        raise
    finally:
        line.show("")


def _report(run: Run, as_json: bool) -> int:
    standing, now = run.standing, time.time()
    counts = standing.counts()
    if as_json:
        document = run_json(standing, False, now)
        document |= {"agents": agents_json(standing.agents)}
        document |= {"problems": units_json(list(standing.units.values()))}
        say.out_json(document)
    else:
        say.out(outcome(standing))
        for unit, _, many, of in standing.disagreements():
            say.out(plain(f"{unit.unit.title}: this winner holds on {many} of {of} devices"))
    if counts.left:
        say.err(f"{counted(counts.left, 'problem')} left; rocm-tui tune --resume {run.name}")
    return ExitCode.of(counts.ok)

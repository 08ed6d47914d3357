"""`rocm-tui tune --fleet`: tune on many devices, into one cache."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from backend.counted import counted
from backend.disk.layout import Layout
from backend.toolchain.target import amdgpu
from backend.wire.jobs import Gpu
from rocm_tui import say
from rocm_tui.cli.common import CommandArguments, ExitCode, print_list
from rocm_tui.cli.work import LiveLine, ended_by_signals
from rocm_tui.errors import UsageError
from rocm_tui.fleet.facts import Facts, FleetOptions
from rocm_tui.fleet.local import LocalDevices
from rocm_tui.fleet.results import Results, UnitResults, UnitState
from rocm_tui.fleet.units import Asked, Unit, units_of
from rocm_tui.harmless import plain
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.session.numbers import running

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
        raise UsageError("--device goes without --fleet, which names the devices")
    if args.repeat < 1:
        raise UsageError("--repeat is a number of devices, 1 or more")
    cluster = next((word for word in args.fleet if word.startswith("ray")), None)
    if cluster is not None and len(args.fleet) > 1:
        raise UsageError("a Ray cluster is a fleet of its own: give one --fleet")
    if any(word.startswith("ssh") for word in args.fleet):
        raise UsageError("fleets over ssh were removed: start a Ray cluster and use --fleet ray")
    units = units_of(problems(), options)
    if args.dry_run or not units:
        listed = UnitsJson([fill(UnitJson, unit, unit=unit.id) for unit in units])
        lines = [f"{unit.id}  {unit.title}  about {unit.weight:.0f} s" for unit in units]
        return print_list(listed, lines, args.json)
    if args.compile_only is not None:
        if cluster is not None:
            raise UsageError("--compile-only goes with --fleet local:cpu:N")
        return _compile(layout, args, units, _gpu(args.compile_only))
    results = Results(layout, units, workers_write=cluster is None)
    progress = _Progress(results)
    wanted = FleetOptions(
        repeat=args.repeat,
        missing=args.missing,
        device_class=args.device_class,
        python=args.python,
        tell=progress.tell,
        look=progress.look,
    )
    try:
        with ended_by_signals(), progress.line.during("tune", ""):
            if cluster is not None:
                _tune_on_cluster(cluster, results, wanted)
            else:
                with LocalDevices(layout, args.fleet, args.python) as devices:
                    devices.tune(results, wanted)
    except (KeyboardInterrupt, SystemExit):
        progress.tell("ended; the results so far are in the cache: --missing tunes the others")
        if args.json:
            say.out_json(_results_json(results, progress, args.fleet))
        raise
    return _report(results, progress, args)


def _tune_on_cluster(word: str, results: Results, wanted: FleetOptions) -> None:
    from rocm_tui.fleet.cluster import Cluster, ray_address  # with what a cluster needs

    with Cluster(ray_address(word)) as cluster, ended_by_signals():  # Ray has set its own
        cluster.tune(results, wanted)


@dataclass
class _Progress:
    """A line on stderr that changes as results come; now and then one where stderr is a file."""

    results: Results
    began: float = field(default_factory=time.time)
    line: LiveLine = field(default_factory=LiveLine)
    said: float = field(default_factory=time.monotonic)

    @property
    def a_minute(self) -> float:
        return self.results.count("merged") * 60 / max(1e-3, time.time() - self.began)

    def tell(self, text: str) -> None:
        self.line.show("")
        say.err(plain(text))

    def look(self) -> None:
        text = self._text()
        self.line.show(text)
        if not sys.stderr.isatty() and time.monotonic() - self.said >= _EVERY:
            self.said = time.monotonic()
            say.err(text)

    def _text(self) -> str:
        """`12 of 40 tuned · 8 devices · 3.1 a minute · about 9 min to go`."""
        results, rate = self.results, self.a_minute
        left, failed = results.count("left"), results.count("failed")
        of = len(results.units) - results.count("skipped")
        parts = [
            f"{results.count('merged')} of {of} tuned",
            counted(failed, "failure") if failed else "",
            counted(len(results.devices), "device") if results.devices else "waiting for devices",
            f"{rate:.1f} a minute" if rate else "",
            f"about {running(left * 60 / rate)} to go" if rate and left else "",
        ]
        return " · ".join(filter(None, parts))


def _report(results: Results, progress: _Progress, args: CommandArguments) -> int:
    units = results.units.values()
    if args.json:
        say.out_json(_results_json(results, progress, args.fleet))
    else:
        say.out(_outcome(results))
        for unit in results.disagreements:
            say.out(
                plain(f"{unit.unit.title}: this winner holds on {unit.holds} of {unit.of} devices")
            )
    for unit in units:
        if unit.state == "failed" and not args.json:
            why = "; ".join(f"{name}: {reason}" for name, reason in unit.reasons.items())
            say.err(plain(f"{unit.unit.title} was not tuned: {why}"))
    return ExitCode.of(not results.count("failed") and not results.count("left"))


def _outcome(results: Results) -> str:
    """Summarise the results in a line."""
    counts = {state: results.count(state) for state in ("failed", "single", "skipped", "left")}
    have = "has" if counts["single"] == 1 else "have"
    disagree = len(list(results.disagreements))
    parts = [
        f"{counted(results.count('merged'), 'problem')} of {len(results.units)} tuned and in the "
        "cache",
        f"{counts['failed']} failed" if counts["failed"] else "",
        f"{counts['single']} {have} one choice: nothing to tune" if counts["single"] else "",
        f"{counts['skipped']} left out" if counts["skipped"] else "",
        f"{counts['left']} left" if counts["left"] else "",
        f"devices disagree on {disagree}" if disagree else "",
    ]
    return ", ".join(filter(None, parts))


class AgentJson(JsonObject):
    """A device of the fleet; `why` it gets no work, or `facts` about it."""

    agent: str
    why: str | None
    done: int
    failed: int
    facts: Facts | None


class FleetProblemJson(JsonObject):
    """A problem, and the devices that tuned it or the reasons why they did not."""

    unit: str
    title: str
    state: str
    agents: list[str]
    reasons: list[str]
    merged_from: str | None
    winner: str | None
    holds: int | None
    of: int | None


class FleetTunedJson(Document, tag="rocm-tui/tune-fleet/1"):
    """Counts of problems by their state, the devices, and each problem."""

    fleet: list[str]
    started: float
    units: int
    merged: int
    failed: int
    single: int
    skipped: int
    left: int
    a_minute: float | None
    system_hash: str
    device_class: str
    agents: list[AgentJson]
    problems: list[FleetProblemJson]


def _results_json(results: Results, progress: _Progress, words: Iterable[str]) -> FleetTunedJson:
    units = list(results.units.values())
    done = [name for unit in units for name in unit.results]
    failed = [name for unit in units for name in unit.reasons]
    return FleetTunedJson(
        fleet=list(words),
        started=progress.began,
        units=len(units),
        **{state: results.count(state) for state in get_args(UnitState)},
        a_minute=progress.a_minute,
        system_hash=results.chosen.system_hash,
        device_class=results.chosen.device_class,
        agents=[
            *(
                AgentJson(name, None, done.count(name), failed.count(name), facts)
                for name, facts in sorted(results.devices.items())
            ),
            *(AgentJson(name, why, 0, 0, None) for name, why in sorted(results.refused.items())),
        ],
        problems=[_unit_json(unit) for unit in units],
    )


def _unit_json(unit: UnitResults) -> FleetProblemJson:
    unknown = dict.fromkeys(("winner", "holds", "of")) if unit.merged_from is None else {}
    return fill(
        FleetProblemJson,
        unit,
        unit.unit,
        unit=unit.unit.id,
        agents=list(unit.results),
        reasons=list(unit.reasons.values()),
        **unknown,
    )


class UnitJson(JsonObject):
    """A problem to tune: `weight` is about how many seconds it takes."""

    unit: str
    title: str
    weight: float
    calls: float


class UnitsJson(Document, tag="rocm-tui/tune-fleet-problems/1"):
    units: list[UnitJson]


class CompiledJson(Document, tag="rocm-tui/tune-compile/1"):
    """How many choices were compiled, were compiled before, and failed; the reasons by problem."""

    compiled: int
    found: int
    failed: int
    not_compiled: dict[str, str]


def _gpu(text: str) -> Gpu:
    """`gfx942`, `gfx942:228`. Raises UsageError."""
    arch, _, units = text.partition(":")
    try:
        card = amdgpu(arch).facts
    except ValueError:
        card = None
    many = int(units) if units.isascii() and units.isdecimal() else 0
    if card is not None and not units:
        many = card.compute_units
    if card is None or not many:
        raise UsageError(
            f"--compile-only takes an AMD GPU and its compute units, as gfx942:304, not {text}"
        )
    return Gpu(arch, many)


def _compile(layout: Layout, args: CommandArguments, units: Sequence[Unit], gpu: Gpu) -> int:
    ours = [unit for unit in units if unit.job.templates and not unit.on_cpu]
    with ended_by_signals(), LocalDevices(layout, args.fleet, args.python) as devices:
        done = devices.compile_only(ours, gpu)
    counts = done.counts
    if args.json:
        say.out_json(CompiledJson(**counts, not_compiled=done.reasons))
    else:
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        compiled = counted(counts["compiled"], "choice")
        say.out(f"{compiled} compiled for {gpu.arch}, {counts['found']} found{failed}")
    for line in sorted(done.languages_off):
        say.err(plain(f"not compiled: {line}"))
    for title, reason in done.reasons.items():
        say.err(plain(f"{title}: {reason}"))
    return ExitCode.of(not done.reasons and counts["compiled"] + counts["found"] > 0)

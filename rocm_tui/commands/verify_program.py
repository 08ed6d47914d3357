"""`rocm-tui verify [ID...] -- CMD...`: the person's own program is the proof."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocm_tui import say
from rocm_tui.commands import common
from rocm_tui.errors import RocmTuiError

if TYPE_CHECKING:
    from backend.model.choice import Choice
    from backend.model.pin import Pin
    from backend.store.paths import Layout
    from rocm_tui.actions.witness import Finding, TraceFolder, Witness


def run_program(args: argparse.Namespace, layout: Layout, pins: list[Pin]) -> int:
    """Run CMD as it would run by itself, then say what its code calls."""
    from rocm_tui import environment as hook_env
    from rocm_tui.actions.witness import TraceFolder
    from rocm_tui.commands.work import ended_by_signals
    from rocm_tui.launch.child import Child

    env = hook_env.unhooked(os.environ)
    if args.cache_dir is not None:
        env["TORCHINDUCTOR_CACHE_DIR"] = str(layout.root)
    with ended_by_signals(), TraceFolder(env) as folder:
        try:
            status = Child(look=folder.look).run(args.argv, {**env, **folder.env})
        except OSError as error:
            raise RocmTuiError(f"{args.argv[0]}: cannot be run: {error.strerror}") from error
        heard = _Heard(folder, layout, pins)
    ok = status == 0 and heard.all_of_it and all(f.answer == "called" for f in heard.findings)
    if args.json:
        say.out_json(heard.as_json(args.argv, status))
    else:
        for line in heard.lines(status):
            say.out(line)
    return 0 if ok else 1


class _Heard:
    """What the processes of a program said."""

    def __init__(self, folder: TraceFolder, layout: Layout, pins: list[Pin]) -> None:
        from rocm_tui.actions.witness import Witness
        from rocm_tui.ingest.trace_code import TraceCode

        witness: Witness = Witness(pins, _choices(layout))
        files = folder.files()
        self.damaged = 0
        for path, most in files:
            reader = TraceCode()
            with path.open("rb") as stream:
                for data in reader.read(stream, most):
                    witness.hear(data)
            self.damaged += reader.damaged
        self.processes = len(files)
        self.full = folder.full
        self.findings = witness.findings
        self.graphs, self.unread = witness.graphs, witness.unread

    @property
    def all_of_it(self) -> bool:
        return not (self.full or self.damaged)

    def lines(self, status: int) -> list[str]:
        from rocm_tui.harmless import plain

        said = [] if status == 0 else [f"the program ended {_ending(status)}"]
        if self.full:
            said.append(
                "not all of its code was kept: the trace reached its limit; to keep all of it set "
                "TORCH_TRACE to a folder of yours"
            )
        if self.damaged:
            said.append(
                f"{_count(self.damaged, 'graph')} could not be read: the trace was cut off, or two "
                "processes wrote to one file"
            )
        said += [f"{finding.pin.id}: {self._sentence(finding)}" for finding in self.findings]
        return [plain(line) for line in said]

    def as_json(self, argv: list[str], status: int) -> dict[str, Any]:
        return {
            "program": {"argv": argv, "exit_code": status if status >= 0 else 128 - status},
            "processes": self.processes,
            "graphs": self.graphs,
            "unread": self.unread + self.damaged,
            "complete": self.all_of_it,
            "pins": [
                {
                    "id": finding.pin.id,
                    "ok": finding.answer == "called",
                    "answer": finding.answer,
                    "called": finding.called,
                    "others": dict(finding.others),
                    "unknown": finding.unknown,
                    "untuned": finding.untuned,
                    "reason": self._sentence(finding),
                }
                for finding in self.findings
            ],
        }

    def _sentence(self, finding: Finding) -> str:
        from backend.model.origin import is_own

        pin = finding.pin
        if finding.answer == "called":
            return f"called: {pin.label} ({_count(finding.called, 'compiled graph')})"
        if finding.answer == "other":
            instead = " and ".join(finding.others)
            wrong = finding.others.total()
            who = (
                "the compiled graph calls"
                if finding.graphs == 1
                else (f"{wrong} of {finding.graphs} compiled graphs call")
            )
            line = f"not called: {who} {instead} instead of {pin.label}"
            if is_own(pin.hash):
                line += "; stock PyTorch has none of our choices, a program that has them is: "
                line += f"rocm-tui verify {pin.id} -- rocm-tui run --templates -- CMD"
            return line
        if finding.answer == "unknown":
            return (
                f"cannot be told: {finding.unknown} of {_count(finding.graphs, 'compiled graph')} "
                f"hold {pin.op} on these inputs, and the text does not say with which choice"
            )
        if finding.answer == "untuned":
            return "not called: the program compiled it without max_autotune, which asks no cache"
        return self._absent()

    def _absent(self) -> str:
        if not self.processes:
            return "not seen: the program compiled nothing, or its processes do not get TORCH_TRACE"
        if self.unread:
            return (
                f"not seen: {self.unread} of {_count(self.graphs, 'compiled graph')} are of a form "
                "that is not understood; the others do not have these inputs"
            )
        return "not seen: the program compiled nothing with these inputs"


def _choices(layout: Layout) -> Mapping[object, Mapping[str, Choice]]:
    """What is known of the choices of each key: an older row says less of them."""
    found: dict[object, dict[str, Choice]] = {}
    for row in common.load(layout, []).rows():
        known = found.setdefault(row.tuning.key, {})
        for choice in row.tuning.choices:
            if choice.hash and (choice.config or choice.hash not in known):
                known[choice.hash] = choice
    return found


def _ending(status: int) -> str:
    if status > 0:
        return f"with exit code {status}"
    try:
        return f"by signal {-status}, {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

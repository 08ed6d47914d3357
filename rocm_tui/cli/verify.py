"""`rocm-tui verify [ID...] [-- CMD...]`: does a compile really call the pinned choice?"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec import UNSET, UnsetType

from backend.cache.configs import folders_of
from backend.counted import counted, device_ranges, noun
from backend.disk.layout import Layout
from backend.model.inductor_kernel import TRITON, is_kernel, kernel_name
from backend.model.origin import is_own
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from backend.wire.jobs import VerifyResult
from rocm_tui import say
from rocm_tui.actions.verify import (
    DevicesResult,
    PinToVerify,
    Verifying,
    keep_program,
    keep_result,
    why_not_here,
)
from rocm_tui.actions.verify_program import (
    OptionEvidence,
    PinEvidence,
    ProgramProof,
    pins_to_verify,
    prove_by_program,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode, ProgramCommand
from rocm_tui.cli.work import LiveLine, ended_by_signals
from rocm_tui.environment import find_python
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import seconds_given
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.jobs import key_title, verified_text
from rocm_tui.session.find import find_pins


class VerifiedPinJson(JsonObject):
    """A worker's result for a pin; `devices` by index if several tuned it."""

    id: str
    ok: bool
    reason: str
    conclusive: bool
    modes: int
    kernel: str | None
    hash: str | None
    proof: str
    torch: str
    rebuilt: bool
    spent: bool
    devices: Mapping[str, VerifyResult] | UnsetType = UNSET


class VerifiedPinsJson(Document, tag="rocm-tui/verify/1"):
    pins: list[VerifiedPinJson]


@click.command(cls=ProgramCommand)
@common.pinned_ids_argument
@common.seconds("--timeout", "Give up a pin after this long, and go on", "300")
@common.dry_run_option
@common.device_option
@common.worker_options
def verify_command(
    ids: Sequence[str],
    timeout: float | None,
    dry_run: bool,
    device: str | None,
    python: str | None,
    cache_dir: Path | None,
    json: bool,
    program: Sequence[str] | None,
) -> int:
    """Compile the op of each pin with warm caches, on each GPU that tuned it; check its code.

    ID is a pinned tuning (default: all). Exit code 0 only if the generated code calls every pinned
    choice. With `-- CMD...` nothing is rebuilt: your program runs as usual, and the code that it
    compiled or found compiled is checked; exit code 0 then also needs CMD to succeed. Kernels of
    rocm-tui that it calls are listed, and options that `improve` confirmed, with or without pins.

    Example: rocm-tui verify -- python train.py
    """
    if program is not None and not program:
        raise UsageError("-- needs a command: rocm-tui verify -- python train.py")
    if program and device is not None:
        raise UsageError("--device goes without CMD, which uses the devices that it chooses")
    if program and dry_run:
        raise UsageError("--dry-run goes without CMD, which runs as usual")
    seconds_given(timeout, "--timeout")
    common.report_settings()
    layout = common.layout_at(cache_dir)
    pins = PinStore(layout).pins()
    chosen = find_pins(pins, ids) if ids else list(pins)
    if not chosen and not program:
        if json:
            say.out_json(VerifiedPinsJson(pins=[]))
        say.err("nothing is pinned, so there is nothing to verify")
        return ExitCode.NO
    if program:
        return _run_program(program, layout, chosen, cache_dir, json)
    tuned = [each.on(device) for each in pins_to_verify(chosen, layout)]
    python = find_python(python)
    steps = [
        f"verify {pin.id} {key_title(pin.op, pin.inputs)}"
        for pin in chosen
        if not why_not_here(pin)
    ]
    if dry_run and steps:  # without any, verifying starts nothing and says why
        return common.print_plan(steps, json)
    return _rebuild(tuned, python, layout, timeout, json)


def _rebuild(
    tuned: Sequence[PinToVerify], python: str, layout: Layout, timeout: float | None, json: bool
) -> int:
    """Verify pins in a worker, and print each result as soon as it is known."""
    line = LiveLine()
    pins = [each.pin for each in tuned]

    def tell(place: int, pin: Pin, what: str) -> None:
        line.part(place - 1, len(pins))
        line.title = f"verifying {place} of {len(pins)}"
        line.show(f"{key_title(pin.op, pin.inputs)}, {what}")

    results: dict[int, VerifyResult] = {}
    with (
        ended_by_signals(),
        Verifying(python, layout, seconds=timeout, tell=tell) as verifying,
        line.during("", ""),
    ):
        for pin, result in verifying.results(tuned):
            results[id(pin)] = result
            keep_result(layout, pin, result)
            line.show("")
            if not json:
                say.out(f"{plain(pin.id)}: {_verified(pin, result)}", flush=True)
    if json:
        verified = [fill(VerifiedPinJson, results[id(pin)], id=pin.id) for pin in pins]
        say.out_json(VerifiedPinsJson(pins=verified))
    return ExitCode.of(all(result.ok for result in results.values()))


def _verified(pin: Pin, result: VerifyResult) -> str:
    """Whether the code calls what is pinned; of several GPUs, on which of them."""
    if not isinstance(result, DevicesResult):
        return verified_text(pin, result)
    if result.ok:
        return plain(f"{result.reason}: {pin.label} ({result.kernel or pin.hash})")
    return verified_text(pin, result).removeprefix("not verified: ")


def _run_program(
    program: Sequence[str], layout: Layout, pins: list[Pin], cache_dir: Path | None, json: bool
) -> int:
    """Run CMD as usual, then report what its code calls."""
    with ended_by_signals():
        proof = prove_by_program(program, pins, layout, cache_dir)
    for finding in proof.findings:
        if finding.answer in ("called", "other") and proof.complete:
            ok = finding.answer == "called"
            keep_program(layout, finding.pin, ok=ok, program=shlex.join(program))
    if json:
        say.out_json(ProgramProofJson.of(proof))
    else:
        for line in (*_proof_lines(proof), *_elsewhere(proof, layout)):
            say.out(plain(line))
    return ExitCode.of(proof.proved)


def _proof_lines(proof: ProgramProof) -> Iterator[str]:
    if proof.status:
        yield f"the program ended {_ending(proof.status)}"
    if proof.full:
        yield (
            "only a part of its code was kept: the trace reached its limit; to keep everything, "
            "set TORCH_TRACE to a folder of yours"
        )
    if proof.damaged:
        yield (
            f"{counted(proof.damaged, 'graph')} could not be read: the trace was cut off, or two "
            "processes wrote to one file"
        )
    if proof.lost:
        yield (
            f"{counted(proof.lost, 'file')} of what its processes compiled or launched could not "
            "be read, so nothing is proved; run it again"
        )
    for finding in proof.findings:
        yield f"{finding.pin.id}: {_finding_text(finding, proof)}"
    for own in proof.own:
        yield (
            f"calls our {own.label} for {key_title(own.op, own.inputs)} "
            f"({counted(own.graphs, 'compiled graph')})"
        )
    yield from (_option_text(evidence, proof) for evidence in proof.options)
    if not (proof.findings or proof.own or proof.options):
        yield f"nothing is pinned; kernels of rocm-tui: {_no_kernel_text(proof)}"


def _option_text(evidence: OptionEvidence, proof: ProgramProof) -> str:
    """`epilogue_fusion=False, confirmed for graph dd41cf7: set in 1 of 2 compiled graphs`."""
    confirmed = f"{noun(len(evidence.confirmed), 'graph')} {', '.join(evidence.confirmed)}"
    silent = proof.graphs - evidence.set - evidence.default - evidence.other
    rest = {
        "torch's default": evidence.default,
        "another value": evidence.other,
        "a value that its code does not name": silent,
    }
    parts = "".join(f"; {counted(n, 'has', 'have')} {what}" for what, n in rest.items() if n)
    of = counted(proof.graphs, "compiled graph")
    return (
        f"{evidence.option.label}, confirmed for {confirmed}: set in {evidence.set} of {of}{parts}"
    )


def _no_kernel_text(proof: ProgramProof) -> str:
    if not proof.graphs or proof.unread or not proof.complete:
        return f"none was seen in {counted(proof.graphs, 'compiled graph')}"
    return f"none is called in {counted(proof.graphs, 'compiled graph')}"


def _elsewhere(proof: ProgramProof, layout: Layout) -> Iterator[str]:
    """Where the pinned times may have been out of the program's sight: Inductor names its cache of
    Triton only to a process that compiles with it."""
    if os.environ.get("TRITON_CACHE_DIR"):
        return
    missed = [f.pin for f in proof.findings if f.pin.op == TRITON and f.answer != "called"]
    systems = {pin.system_hash for pin in missed}
    for folder in folders_of(layout.root):
        if folder.parent.parent == layout.root and any((folder / s).is_dir() for s in systems):
            yield (
                f"its times are in Inductor's {folder}, where a process that compiles nothing does "
                f"not look: set TRITON_CACHE_DIR={folder}"
            )


class VerifiedProgramJson(JsonObject):
    argv: Sequence[str]
    exit_code: int


class VerifiedCallsJson(JsonObject):
    """The calls in a program's code at the place of a pin."""

    id: str
    ok: bool
    answer: str
    called: int
    others: dict[str, int]
    unknown: int
    untuned: int
    called_on: list[int]
    others_on: list[int]
    reason: str


class OwnKernelJson(JsonObject):
    """A kernel of rocm-tui that `graphs` compiled graphs of a program call."""

    op: str
    inputs: str
    hash: str
    name: str
    graphs: int


class ConfirmedOptionJson(JsonObject):
    """An option that `improve` confirmed for `graphs`, and how many graphs of the program have
    it, torch's default, or another value."""

    name: str
    value: str
    graphs: Sequence[str]
    set: int
    default: int
    other: int


class ProgramProofJson(Document, tag="rocm-tui/verify-program/1"):
    program: VerifiedProgramJson
    processes: int
    graphs: int
    unread: int
    complete: bool
    pins: list[VerifiedCallsJson]
    kernels: list[OwnKernelJson]
    options: list[ConfirmedOptionJson]

    @classmethod
    def of(cls, proof: ProgramProof) -> ProgramProofJson:
        status = proof.status
        exit_code = status if status >= 0 else 128 - status
        return fill(
            cls,
            proof,
            program=VerifiedProgramJson(argv=proof.argv, exit_code=exit_code),
            unread=proof.unread + proof.damaged,
            pins=[
                fill(
                    VerifiedCallsJson,
                    finding,
                    id=finding.pin.id,
                    ok=finding.answer == "called",
                    called_on=sorted(finding.called_on),
                    others_on=sorted(finding.others_on),
                    reason=_finding_text(finding, proof),
                )
                for finding in proof.findings
            ],
            kernels=[fill(OwnKernelJson, own, name=own.label) for own in proof.own],
            options=[
                fill(ConfirmedOptionJson, each, each.option, graphs=each.confirmed)
                for each in proof.options
            ],
        )


def _finding_text(finding: PinEvidence, proof: ProgramProof) -> str:
    pin = finding.pin
    if is_kernel(pin.op):
        return _launch_text(finding, "Triton" if pin.op == TRITON else "Inductor")
    if finding.answer == "called":
        graphs = counted(finding.called, "compiled graph")
        return f"called: {pin.label} ({graphs}{_on(finding.called_on)})"
    if finding.answer == "other":
        return _other_text(finding)
    if finding.answer == "unknown" and finding.unknown:
        return (
            f"unclear: {finding.unknown} of {counted(finding.graphs, 'compiled graph')} "
            f"may hold {pin.op} on these inputs, and the text does not say with which choice"
        )
    if finding.answer == "untuned":
        return "not called: the program compiled it without max_autotune, which asks no cache"
    if finding.of_other_system:
        who = f"{finding.of_other_system} of {counted(finding.graphs, 'compiled graph')}"
        calls = noun(finding.of_other_system, "calls", "call")
        answer = "unclear" if finding.called else "not seen"
        return f"{answer}: {who} {calls} the choice pinned for another Triton, ROCm or GPU"
    return _absent_text(proof)


def _on(devices: Collection[int]) -> str:
    """On which of several GPUs."""
    if not devices or set(devices) == {0}:
        return ""
    return f" on {noun(len(devices), 'device')} {device_ranges(devices)}"


def _other_text(finding: PinEvidence) -> str:
    pin, wrong = finding.pin, finding.others.total()
    who = f"{wrong} of {finding.graphs} compiled graphs {noun(wrong, 'calls', 'call')}"
    if finding.graphs == 1:
        who = "the compiled graph calls"
    others = f"{' and '.join(finding.others)}{_on(finding.others_on)}"
    line = f"not called: {who} {others} instead of {pin.label}"
    if is_own(pin.hash):
        line += "; stock PyTorch has none of our choices, a program that has them is: "
        line += f"rocm-tui verify {pin.id} -- rocm-tui run --templates -- CMD"
    return line


def _launch_text(finding: PinEvidence, who: str) -> str:
    pin = finding.pin
    if finding.answer == "called":
        return f"called: {pin.label}, which {who} launched"
    if finding.answer == "other":
        return f"not called: {who} launched {' and '.join(finding.others)} instead of {pin.label}"
    if finding.answer == "untuned" and pin.op != TRITON:
        return (
            "not seen to be taken: the program tuned this kernel again, and came to the same config"
        )
    if finding.answer == "untuned":
        return (
            "not called: the program ran this kernel on these sizes and did not read its times: it "
            "needs TRITON_CACHE_AUTOTUNING=1, and the source, configs and Triton that were tuned"
        )
    return f"not seen: the program did not run {kernel_name(pin.inputs)} on these sizes"


def _absent_text(proof: ProgramProof) -> str:
    if not proof.processes:
        return "not seen: the program compiled nothing, or its processes do not get TORCH_TRACE"
    if proof.unread:
        return (
            f"not seen: {proof.unread} of {counted(proof.graphs, 'compiled graph')} "
            f"{noun(proof.unread, 'is', 'are')} of a form "
            "that is not understood; the others do not have these inputs"
        )
    return "not seen: the program compiled nothing with these inputs"


def _ending(status: int) -> str:
    if status > 0:
        return f"with exit code {status}"
    try:
        return f"by signal {-status}, {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"

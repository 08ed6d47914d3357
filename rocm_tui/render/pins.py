"""Pins and their history: columns for `pins` and its screen, JSON, and what to hear before one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from backend.counted import counted, device_ranges
from backend.errors import StoreError
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.inductor_kernel import is_kernel
from backend.model.problem import Problem, parse_inputs_key
from backend.model.tuning import Tuning
from backend.tables.model import is_table_op, op_label
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.measured import BitsChangeJson
from rocm_tui.render.table import Field, hanging, short_op, short_sizes
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.in_use import device_name, in_use, kernel_identity
from rocm_tui.session.model import Row

if TYPE_CHECKING:  # slow to load, and the screen is up before the first pin is read
    from backend.model.tuning import PinState
    from backend.pins.file import HistoryEntry, PinGroup
    from backend.pins.plan import PinPlan
    from backend.pins.state import PinReport, PinStatus
    from backend.pins.undo import Undo, UndoStep


@dataclass(frozen=True, slots=True)
class Sign:
    """How a pin's state is shown where there is no room for its name, and what it means."""

    mark: str
    style: str
    about: str


PIN_SIGNS: dict[PinState, Sign] = {
    "active": Sign("●", "accent", "the cache and every compiled graph that was seen agree"),
    "unproven": Sign("○", "warn", "a compiled graph may call another kernel; it says which"),
    "drifted": Sign("↻", "warn", "a process wrote over it; it is applied again"),
    "orphaned": Sign("✕", "bad", "the pinned choice exists no more, or fails"),
    "shadowed": Sign("◌", "warn", "something else decides: determinism, another precision"),
}


def proved(status: PinStatus) -> str:
    """What was seen in generated code, and when: `✓ 2h`; `✓?` where it may not hold any more."""
    proof = status.proof
    if proof is None:
        return ""
    if status.stale:
        return "✓?" if proof.ok else "✗?"
    return f"{'✓' if proof.ok else '✗'} {fmt.age(proof.when, time.time())}"


def proof_text(status: PinStatus) -> str:
    """When it was verified and by what, and why that may not hold any more; empty without."""
    return ", ".join(proof_facts(status))


def proof_facts(status: PinStatus) -> list[str]:
    """Return the facts of `proof_text`, so that a narrow line keeps the first."""
    proof = status.proof
    if proof is None:
        return []
    what = "verified" if proof.ok else "not called"
    by = "a program's own code" if proof.by == "program" else plain(proof.by)
    facts = [f"{what} {moment(proof.when)} by {by}"]
    facts += [f"{status.stale}, v verifies again"] if status.stale else []
    return [*facts, f"torch {plain(proof.torch)}"] if proof.torch else facts


def state_text(status: PinStatus) -> str:
    """`active on 0-3`, `unproven on 3`: the state, and where it is so on a box with several devices
    that tuned the problem."""
    on = [device.index for device in status.devices]
    without = [device.index for device in status.devices if not device.holds]
    if len(on) < 2 or status.state not in ("active", "unproven"):
        return status.state
    return f"{status.state} on {device_ranges(without or on)}"


def state_on(status: PinStatus, index: int | None) -> str:
    """The state on one device: a pin that some do not hold is active on the others."""
    holds = any(device.holds for device in status.devices if device.index == index)
    some = any(not device.holds for device in status.devices)
    return "active" if status.state == "unproven" and some and holds else status.state


def _shape(status: PinStatus) -> str:
    """The operands' sizes of an inputs key, as far as it can be read; of a Triton kernel its name
    and what it was tuned for."""
    if is_table_op(status.pin.op):
        return plain(status.pin.inputs)
    if is_kernel(status.pin.op):
        return plain(stats.all_sizes(Problem(status.pin.op, inputs_key=status.pin.inputs)))
    try:
        specs = parse_inputs_key(status.pin.inputs).specs
    except StoreError:
        return fmt.NONE
    return plain(stats.operands_text(spec.sizes for spec in specs))


_STATE: Field[PinStatus] = Field(
    "state", "STATE", 10, 17,
    text=state_text,
    short=lambda status: f"{PIN_SIGNS[status.state].mark} {state_text(status)}",
    style=lambda status: PIN_SIGNS[status.state].style,
    about="state of the pin: active, unproven, drifted, orphaned, shadowed",
)  # fmt: skip
_ID: Field[PinStatus] = Field(
    "id", "ID", 7, 7, drop=6, text=lambda status: status.pin.id, style="dim",
    about="the pinned tuning's id, for show, verify and unpin",
)  # fmt: skip
_OP: Field[PinStatus] = Field(
    "op", "OP", 6, 16, good=11, style="strong",
    text=lambda status: plain(op_label(status.pin.op)),
    short=lambda status: short_op(op_label(status.pin.op)),
    about="the op that the pin is for",
)  # fmt: skip
_SHAPE: Field[PinStatus] = Field(
    "shape", "SHAPE", 8, 34, drop=2, good=22,
    text=_shape, short=lambda status: short_sizes(_shape(status)),
    about="every operand's sizes",
)  # fmt: skip
_CHOICE: Field[PinStatus] = Field(
    "choice", "CHOICE", 14, 40, good=22,
    text=lambda status: fmt.shorten(plain(status.pin.label), 40),
    short=lambda status: plain(status.pin.label),
    about="the choice that every later program shall take",
)  # fmt: skip
_PROVED: Field[PinStatus] = Field(
    "verified", "VERIFIED", 8, 8, drop=4, text=proved,
    style=lambda status: "warn" if status.stale or "✗" in proved(status) else "accent",
    about="✓ 2h: verified; ✓?: since then something changed; ✗: another is called",
)  # fmt: skip
_WHO: Field[PinStatus] = Field(
    "who", "WHO", 4, 14, drop=5, text=lambda status: plain(status.pin.who), style="dim",
    about="who pinned it",
)  # fmt: skip
_AGE: Field[PinStatus] = Field(
    "when", "AGE", 6, 6, drop=3, right=True, style="dim", about="since it was pinned",
    text=lambda status: fmt.age(status.pin.when or None, time.time()),
)  # fmt: skip
_DRIFTS: Field[PinStatus] = Field(
    "drifts", "DRIFTS", 6, 6, drop=1, right=True, text=lambda status: str(status.pin.drifts),
    short=lambda status: str(status.pin.drifts or ""), style="warn",
    about="how often it had to be applied again",
)  # fmt: skip
_NOTE: Field[PinStatus] = Field(
    "note", "NOTE", 6, 60, drop=7, text=lambda status: plain(status.pin.note), style="dim",
    about="why it was pinned",
)  # fmt: skip
_DETAIL: Field[PinStatus] = Field(
    "detail", "", text=lambda status: "" if status.state == "active" else plain(status.detail)
)
PIN_LIST = (_ID, _OP, _CHOICE, _STATE, _PROVED, _DRIFTS, _WHO, _AGE, _NOTE, _DETAIL)
"""What `pins` prints."""
PIN_COLUMNS = (_STATE, _PROVED, _ID, _OP, _SHAPE, _CHOICE, _WHO, _AGE, _DRIFTS, _NOTE)
"""What the screen has."""


def moment(seconds: float) -> str:
    """A Unix time in the person's own."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


HISTORY_COLUMNS: tuple[Field[HistoryEntry], ...] = (
    Field(
        "when", "WHEN", 16, 16, text=lambda entry: moment(entry.when), style="dim",
        about="when it was done",
    ),
    Field(
        "what", "WHAT", 8, 12, text=lambda entry: plain(entry.what),
        about="pinned, unpinned, applied again, ...",
    ),
    Field(
        "op", "OP", 6, 16, drop=2, good=11, style="strong",
        text=lambda entry: plain(op_label(entry.op)),
        short=lambda entry: short_op(op_label(entry.op)),
        about="the op that the pin was for",
    ),
    Field(
        "choice", "CHOICE", 14, 40, good=20, text=lambda entry: plain(entry.label),
        about="the choice that was pinned",
    ),
    Field(
        "who", "WHO", 4, 14, drop=5, text=lambda entry: plain(entry.who), style="dim",
        about="who did it",
    ),
    Field(
        "note", "NOTE", 6, 60, drop=3, good=20, text=lambda entry: plain(_reason(entry)),
        style="dim", about="by which command, among several; and why",
    ),
)  # fmt: skip


def _reason(entry: HistoryEntry) -> str:
    command = f"({entry.group.command})" if entry.group else ""
    return " ".join(filter(None, (command, entry.note)))


def history_line(entry: HistoryEntry) -> str:
    """Return the line of an entry in `pins --history`."""
    parts = (entry.what, entry.label, entry.who, _reason(entry))
    return hanging(f"{moment(entry.when)}  ", "  ".join(plain(part) for part in parts if part))


class VerifiedJson(JsonObject):
    """What was last seen in generated code; `stale` is why that may not hold any more."""

    when: float
    ok: bool
    by: str
    torch: str
    stale: str | None


class PinDeviceJson(JsonObject):
    index: int
    holds: bool


class PinJson(JsonObject):
    """A pin with its state; `timings` are the measured milliseconds, null where one failed."""

    id: str
    op: str
    precision: str
    hash: str
    label: str
    drifts: int
    device: str | None
    system_hash: str
    who: str
    when: float
    note: str
    inputs_key: str
    state: str
    detail: str
    devices: list[PinDeviceJson]
    verified: VerifiedJson | None
    timings: Mapping[str, Mapping[str, float | None]]

    @classmethod
    def of(cls, status: PinStatus) -> PinJson:
        proof, stale = status.proof, status.stale or None
        return fill(
            cls,
            status.pin,
            status,
            inputs_key=status.pin.inputs,
            devices=[fill(PinDeviceJson, device) for device in status.devices],
            verified=None if proof is None else fill(VerifiedJson, proof, stale=stale),
        )


class PinPlanJson(Document, tag="rocm-tui/pin-plan/1"):
    """What a pin would change."""

    hash: str
    cache_file: str
    numbers: int
    precisions: tuple[str, ...]
    graphs: list[str]
    replaces: str | None
    devices: tuple[int, ...]
    change_of_bits: BitsChangeJson | UnsetType

    @classmethod
    def of(cls, plan: PinPlan, bits: BitsChangeJson | UnsetType = UNSET) -> PinPlanJson:
        return fill(
            cls,
            plan,
            cache_file=str(plan.path),
            graphs=[str(graph.path) for graph in plan.graphs],
            replaces=plan.replaces.hash if plan.replaces else None,
            change_of_bits=bits,
        )


class PinReportJson(Document, tag="rocm-tui/pin/1"):
    """What a pin changed, and its state as read back."""

    pin: PinJson | None
    cache_file: str
    numbers: int
    graphs_moved: int
    graphs_restored: int
    change_of_bits: BitsChangeJson | UnsetType

    @classmethod
    def of(cls, report: PinReport, bits: BitsChangeJson | UnsetType = UNSET) -> PinReportJson:
        return cls(
            pin=PinJson.of(report.status) if report.status else None,
            cache_file=str(report.path),
            numbers=report.numbers,
            graphs_moved=report.moved,
            graphs_restored=report.restored,
            change_of_bits=bits,
        )


class PinEventJson(JsonObject):
    """An entry of the history of pins."""

    when: float
    who: str
    what: str
    op: str
    precision: str
    hash: str
    label: str
    note: str
    inputs_key: str
    command: str | None

    @classmethod
    def of(cls, entry: HistoryEntry) -> PinEventJson:
        command = entry.group.command if entry.group else None
        return fill(cls, entry, inputs_key=entry.inputs, command=command)


def undo_lines(undo: Undo) -> list[str]:
    """What an undo does, and to what: a sentence each."""
    if undo.group is not None and (len(undo.steps) > 1 or undo.left):
        return _group_lines(undo, undo.group)
    return _step_lines(undo.steps[0])


def undo_title(undo: Undo) -> str:
    """Name what an undo reverts: `pin mm → triton_mm_4`, `3 steps of agree --pin`."""
    if undo.group is not None and len(undo.steps) > 1:
        return f"{counted(len(undo.steps), 'step')} of `{plain(undo.group.command)}`"
    entry, again = undo.entry, undo.steps[0].again
    verb = "unpin" if entry.what == "unpin" else "pin"
    title = f"{verb} {plain(op_label(entry.op))} → {plain(entry.label)}"
    restored = again is not None and entry.what != "unpin"
    return f"{title}; {plain(again.label)} is pinned again" if again and restored else title


def undone_pins(undo: Undo) -> list[str]:
    """What is undone, a line each; nothing where there is only one."""
    if len(undo.steps) == 1:
        return []
    lines = []
    for step in undo.steps:
        label, again = plain(step.entry.label), step.again
        if step.entry.what != "unpin" and again is not None:
            label = f"{label}, {plain(again.label)} again"
        lines.append(f"{step.entry.key.id}  {plain(op_label(step.entry.op))}  {label}")
    return lines


def _group_lines(undo: Undo, group: PinGroup) -> list[str]:
    back = sum(step.entry.what != "unpin" for step in undo.steps)
    again, command = len(undo.steps) - back, plain(group.command)
    lines = []
    if back:
        lines.append(f"Remove {counted(back, 'pin')} of `{command}`.")
    if again:
        lines.append(f"Pin {counted(again, 'choice')} again that `{command}` unpinned.")
    former = sum(step.again is not None for step in undo.steps) - again
    if former:
        lines.append(f"The earlier pin is restored for {former:,} of them.")
    if undo.left:
        lines.append(
            f"{counted(undo.left, 'more pin has', 'more pins have')} changed since: not undone."
        )
    return [*lines, f"Done {moment(group.when)} by {plain(undo.entry.who)}."]


def _step_lines(step: UndoStep) -> list[str]:
    entry, again, op = step.entry, step.again, plain(op_label(step.entry.op))
    label, event = plain(entry.label), f"{moment(entry.when)} by {plain(entry.who)}."
    if again is None:
        return [f"Remove the pin {op} → {label}.", f"Pinned {event}"]
    does = f"Pin {op} → {plain(again.label)} again"
    if entry.what == "unpin":
        return [f"{does}.", f"Unpinned {event}"]
    return [f"{does}, in place of {label}.", f"{label} was pinned {event}"]


class UndoStepJson(JsonObject):
    """The pin or unpin that is undone, and the choice that is pinned again; null for none."""

    undone: PinEventJson | None
    pinned_again: str | None
    id: str | None


class UndoJson(UndoStepJson, Document, tag="rocm-tui/undo/1"):
    """What an undo does: `steps` are all of its command, the latest is repeated beside them."""

    command: str | None
    left: int
    steps: list[UndoStepJson]
    dry_run: bool

    @classmethod
    def of(cls, undo: Undo | None, *, dry_run: bool) -> UndoJson:
        steps = [
            UndoStepJson(
                undone=PinEventJson.of(step.entry),
                pinned_again=step.again.hash if step.again else None,
                id=step.entry.key.id,
            )
            for step in (undo.steps if undo else ())
        ]
        return fill(
            cls,
            steps[0] if steps else UndoStepJson(undone=None, pinned_again=None, id=None),
            command=undo.group.command if undo and undo.group else None,
            left=undo.left if undo else 0,
            steps=steps,
            dry_run=dry_run,
        )


def pin_warning(tuning: Tuning, choice: Choice) -> str | None:
    """Return a sentence if `choice` is known to be slower than the best one, else None.

    There may be reasons for pinning it. A measured verdict counts; single times only if they differ
    by more than their timer resolves.
    """
    measured = stats.measured(tuning, choice)
    if measured is not None and tuning.measured is not None:
        best = tuning.measured.choices[0]
        if measured.verdict != "slower":
            return None
        name = next((c.label for c in tuning.choices if c.hash == best.hash), best.hash)
        sure = f"{fmt.percent(measured.ratio_low - 1)} to {fmt.percent(measured.ratio_high - 1)}"
        how = f"measured again and again with {tuning.measured.caches} caches"
        return plain(f"{choice.label} is slower than {name} by {sure}, {how}.")
    fastest = stats.winner(tuning)
    if fastest is None or not fastest.ms or choice.ms is None or choice.failed:
        return None
    if stats.near(tuning, fastest, choice):
        return None
    error = fmt.rounding(choice.ms, fastest.ms)
    by = f"{fmt.percent(choice.ms / fastest.ms - 1, error)} slower than {fastest.label}"
    return plain(f"{choice.label} was {by} when it was tuned, by single times, not measured.")


def pin_effect(row: Row, choice: Choice) -> list[str]:
    """What a pin of this choice makes different for later compiles, and how well that is known."""
    if row.devices:
        return [plain(_effect_on(device, choice)) for device in row.devices]
    tuning, now = row.tuning, in_use(row)
    if now is not None and now.hash == choice.hash:
        return [plain(f"Later compiles use {choice.label} already; the pin keeps it so.")]
    instead = f"Later compiles use {choice.label}"
    ours, theirs = stats.measured(tuning, choice), stats.measured(tuning, now)
    if now is None:
        return [plain(f"{instead}.")]
    if ours is not None and theirs is not None and tuning.measured is not None:
        times = f"{fmt.duration(ours.ms)} instead of {fmt.duration(theirs.ms)} with {now.label}"
        doubt = _doubt(tuning.measured, ours, theirs)
        return [plain(f"{instead}: {times}, measured, {tuning.measured.caches}{doubt}.")]
    after, before = stats.single_ms(tuning, choice), stats.single_ms(tuning, now)
    if after is None or before is None:
        return [plain(f"{instead} instead of {now.label}; its time is not known.")]
    times = f"{fmt.once(fmt.duration(after))} instead of {fmt.once(fmt.duration(before))}"
    which = "Nothing was" if ours is None and theirs is None else "Not both were"
    how = f"{which} measured: each time was taken once."
    return [plain(f"{instead}: {times} with {now.label}. {how}")]


def _doubt(measurement: Measurement, *pair: MeasuredChoice) -> str:
    """What a measurement leaves open about two of its choices, behind their times. Each verdict is
    that of a choice against the fastest."""
    verdicts = {choice.verdict for choice in pair if choice != measurement.choices[0]}
    if "unclear" in verdicts:
        return "; it is unclear which is faster"
    return "; they are tied" if verdicts == {"tied"} else ""


def _effect_on(device: Row, choice: Choice) -> str:
    """The same of one of several devices, in short."""
    tuning, now, name = device.tuning, in_use(device), device_name(device)
    own = next((c for c in tuning.choices if kernel_identity(c) == kernel_identity(choice)), None)
    if own is None or own.failed:
        return f"{name} was tuned without it, and keeps what it uses."
    if now is own:
        return f"{name} uses it already; the pin keeps it so."
    ours, theirs = (_duration(tuning, each) for each in (own, now))
    return f"{name}: {ours} instead of {theirs}" + (f" with {now.label}." if now else ".")


def _duration(tuning: Tuning, choice: Choice | None) -> str:
    text = fmt.duration(stats.time_ms(tuning, choice))
    return fmt.once(text) if stats.once(tuning, choice) else text

"""Who chose differently, as the text and the JSON that `agree` prints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from backend.counted import counted, noun
from backend.model.choice import Choice, Measurement
from rocm_tui.compare.choices import identity_of
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.measured import MeasurementJson
from rocm_tui.render.table import Field, fields_of, hanging, text_table
from rocm_tui.render.tuning_json import ProblemJson
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.report.agreement import (
    Agreement,
    Chooser,
    DifferingProblem,
    Proposal,
    Selection,
    in_measurement,
)
from rocm_tui.session import numbers as fmt

NOTHING = (
    "Nothing was compared: no problem has choices of two processes or files that can be compared."
)
TO_PROPOSE = "--propose names one choice for all, --measure measures them first, --pin pins it."
_MOST = 6
"""How many names, pairs or single times are listed one by one."""


def who(choosers: Iterable[Chooser]) -> str:
    """`ranks 0-5, 7`, with what they were read from where others are called so, too."""
    ranks: dict[str, list[int]] = {}
    names: list[str] = []
    for chooser in choosers:
        source = f"{chooser.source}: " if chooser.named and chooser.source else ""
        if chooser.rank is None:
            names.append(f"{source}{chooser.name}")
        else:
            ranks.setdefault(source, []).append(chooser.rank)
    named = [f"{plain(source)}{_ranks(numbers)}" for source, numbers in ranks.items()]
    shown = [fmt.shorten(plain(name), 40) for name in names[:_MOST]]
    more = [counted(len(names) - _MOST, "other")] if len(names) > _MOST else []
    return ", ".join([*named, *shown, *more])


def _ranks(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-5, 7`."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[: _MOST * 2])
    more = ", ..." if len(spans) > _MOST * 2 else ""
    return f"{noun(len(set(numbers)), 'rank')} {shown}{more}"


def _apart(differing: DifferingProblem) -> str:
    if differing.ratio is None:
        return fmt.NONE
    if differing.standing != "apart":
        return "tie" if differing.standing == "tied" else "unclear"
    return _marked(differing, fmt.signed(differing.ratio - 1, differing.error))


def _loss(differing: DifferingProblem) -> str:
    if differing.standing != "apart" or not differing.loss_ms:
        return fmt.NONE
    return _marked(differing, fmt.duration(differing.loss_ms))


def _marked(differing: DifferingProblem, text: str) -> str:
    return text if differing.measurement is not None else fmt.once(text)


DIFFERING: tuple[Field[DifferingProblem], ...] = (
    *fields_of(PROBLEM, lambda differing: differing.row),
    Field(
        "apart", "APART", 7, 9, right=True, text=_apart,
        about="how much slower the slowest chosen one is, where they differ most; ~ not measured",
    ),
    Field(
        "loss", "A CALL", 8, 10, right=True, text=_loss,
        about="what a call takes longer with the slowest; ~ not measured",
    ),
    Field(
        "calls", "CALLS", 5, 7, drop=2, right=True, style="dim",
        text=lambda differing: fmt.count(differing.calls),
        about="how often one of them calls it",
    ),
    Field(
        "share", "SHARE", 6, 7, drop=1, right=True, style="dim",
        text=lambda differing: fmt.percent(differing.share),
        about="its part of a program's time",
    ),
)  # fmt: skip


def labels(differing: DifferingProblem) -> Mapping[str, str]:
    """What its kernels are called, by identity. Inductor numbers its choices as they come, so two
    kernels may have one name; they then have a part of their hash with it."""
    shared = _shared_names(differing)
    return {
        identity_of(group.choice) or "": _distinct_name(group.choice, shared)
        for group in differing.groups
    }


def _shared_names(differing: DifferingProblem) -> frozenset[str]:
    """The names that several of its kernels have, on whichever ranks."""
    names = Counter(
        name
        for group in differing.groups
        for name in {each.choice.label for each in group.selections}
    )
    return frozenset(name for name, kernels in names.items() if kernels > 1)


def _distinct_name(choice: Choice, shared: Collection[str]) -> str:
    if choice.label not in shared:
        return choice.label
    return f"{choice.label} ({Choice(hash=identity_of(choice)).label})"


def _label(choice: Choice, called: Mapping[str, str]) -> str:
    return _short(called.get(identity_of(choice) or "", choice.label))


def _short(label: str) -> str:
    return fmt.shorten(plain(label), 60)


def text(outcome: Agreement, proposals: Sequence[Proposal] = (), width: int | None = None) -> str:
    """A row and its lines for each problem that differs; none if all agree."""
    if not outcome.differing:
        return ""
    heading, *rows = text_table(DIFFERING, outcome.differing, width).split("\n")
    lines = [heading]
    by_row = {id(proposal.differing): proposal for proposal in proposals}
    for differing, row in zip(outcome.differing, rows, strict=True):
        lines.append(row)
        for head, rest in _details(differing, by_row.get(id(differing))):
            lines.append(hanging(f"    {head}", rest, width))
    return "\n".join(lines)


def _details(differing: DifferingProblem, proposal: Proposal | None) -> Iterable[tuple[str, str]]:
    called, shared = labels(differing), _shared_names(differing)
    for group in differing.groups:
        by_name: dict[str, list[Selection]] = {}
        for each in group.selections:
            by_name.setdefault(_distinct_name(each.choice, shared), []).append(each)
        yield from _own_names(by_name)
    if warm := [each.by for group in differing.groups for each in group.selections if each.warm]:
        asked = noun(len(warm), "it asks", "they ask")
        yield f"{who(warm)}: ", f"by a compiled graph out of the cache, with which {asked} nobody"
    for choice, lacking in differing.unoffered:
        was = "was" if len(lacking) == 1 else "were"
        yield f"{who(lacking)} ", f"{was} not offered {_label(choice, called)}"
    if differing.measurement is not None:
        yield "measured: ", measured_text(differing, differing.measurement, called)
    if differing.pinned is not None:
        what = plain(differing.pinned.label or differing.pinned.hash)
        yield "pinned since: ", f"{fmt.shorten(what, 60)}; run the ranks again"
    if proposal is not None:
        yield "proposed: ", proposal_text(proposal, called)


def _own_names(by_name: Mapping[str, Sequence[Selection]]) -> Iterable[tuple[str, str]]:
    """A line for each name that ranks have for one kernel; many names share the last one."""
    several = [(_short(name), taken) for name, taken in by_name.items()]
    if rest := several[_MOST:]:
        several[_MOST:] = [(counted(len(rest), "other name"), [s for _, own in rest for s in own])]
    for at, (name, taken) in enumerate(several):
        words = f"{name} {_times(taken)}".rstrip()
        yield f"{who(each.by for each in taken)}: ", f"{words}{', the same kernel' if at else ''}"


def _times(taken: Sequence[Selection]) -> str:
    """Each one's own time, taken once; of many the least and the greatest."""
    times = [each.ms for each in taken if each.ms is not None]
    if len(times) < _MOST:
        return ", ".join(dict.fromkeys(map(_time, times)))
    return f"{_time(min(times))} to {_time(max(times))}"


def _time(ms: float) -> str:
    return fmt.once(fmt.duration(ms))


def measured_text(
    differing: DifferingProblem, measurement: Measurement, called: Mapping[str, str]
) -> str:
    """`cold caches, bmm 118.0 µs, triton_bmm_4 +3.1 % slower`."""
    chosen = [group.choice for group in differing.groups]
    times = []
    for choice, each in in_measurement(measurement, chosen, differing.selections):
        beyond = "" if each.ratio == 1.0 else f" {fmt.signed(each.ratio - 1)}"
        verdict = "" if each.verdict == "faster" else f" {each.verdict}"
        times.append(f"{_label(choice, called)} {fmt.duration(each.ms)}{beyond}{verdict}")
    return f"{measurement.caches} caches, {', '.join(times)}"


def proposal_text(proposal: Proposal, called: Mapping[str, str]) -> str:
    """What is proposed and by what."""
    if proposal.choice is None:
        return f"none: {proposal.why_not}"
    lacking = f"; {who(proposal.unoffered)} may not have it" if proposal.unoffered else ""
    return f"{_label(proposal.choice, called)}, {basis(proposal)}{lacking}"


def basis(proposal: Proposal) -> str:
    """By what it is proposed."""
    caches = proposal.measurement.caches if proposal.measurement is not None else ""
    if proposal.by == "measured":
        return f"by {caches} measurement"
    if proposal.by == "tie":
        return f"a tie by {caches} measurement, of these by timings"
    return f"by timings, {f'the {caches} measurement is unclear' if caches else 'not measured'}"


def footer(outcome: Agreement, running: Sequence[Chooser] = ()) -> list[str]:
    """Return what was compared, which pairs differ, and what could not be compared. Choosers that
    are still `running` may choose more."""
    lines = [_run(outcome.choosers)] if any(chooser.session for chooser in outcome.choosers) else []
    if outcome.compared:
        same, differ = outcome.compared - len(outcome.differing), len(outcome.differing)
        many = counted(outcome.compared, "problem")
        agree = f"{same:,} of {many} {'agrees' if 1 in (same, outcome.compared) else 'agree'}"
        rest = ""
        if outcome.not_compared:
            every, were = (
                counted(outcome.problems, "problem"),
                noun(outcome.not_compared, "was", "were"),
            )
            rest = f" {outcome.not_compared:,} of {every} {were} not compared."
        lines.append(f"{agree}; {differ:,} {noun(differ, 'differs', 'differ')}.{rest}")
    else:
        lines.append(_nothing(outcome))
    for pair in outcome.pairs[:_MOST]:
        lines.append(
            f"{who(pair.a)} against {who(pair.b)}: the same choice in {pair.same:,} of "
            f"{counted(pair.both, 'problem')}."
        )
    if (more := len(outcome.pairs) - _MOST) > 0:
        lines.append(f"{counted(more, 'further pair differs', 'further pairs differ')}.")
    if outcome.apart:
        what = counted(outcome.apart, "problem was", "problems were")
        lines.append(
            f"{what} tuned on systems that differ (cache file, architecture or compute units): "
            "compared within each; `agree --across` compares them all."
        )
    if outcome.alone and outcome.compared:
        lines.append(
            f"{counted(outcome.alone, 'problem was', 'problems were')} tuned by one alone."
        )
    if outcome.untold:
        what = counted(outcome.untold, "problem was", "problems were")
        lines.append(
            f"{what} not fully compared: some ranks have only a name or a hash that others lack."
        )
    if running:
        lines.append(f"{who(running)} still {noun(len(running), 'runs', 'run')}.")
    if outcome.missing:
        verb = noun(len(outcome.missing), "is", "are")
        lines.append(f"{_ranks(outcome.missing)} {verb} missing: no record of what it took.")
    if outcome.lacking:
        lines.append(f"{counted(outcome.lacking, 'rank is', 'ranks are')} missing.")
    return lines


def differing_text(outcome: Agreement) -> str:
    """Return how ranks that should agree differ; empty where they agree."""
    count = len(outcome.differing)
    if not count:
        return ""
    which = f"{count} of {counted(outcome.compared, 'problem')}"
    warm = sum(any(selection.warm for selection in each.selections) for each in outcome.differing)
    cached = f" ({warm} by a compiled graph out of the cache, with which a rank asks nobody)"
    why = cached if warm else ""
    return f"ranks took different choices of {which}{why}"


def _run(choosers: Sequence[Chooser]) -> str:
    """Who was compared, and when they began: a person sees whether it is the run that is meant."""
    hosts = {chooser.host for chooser in choosers if chooser.host}
    began = min((each.started for each in choosers if each.started), default=0.0)
    on = f" on {counted(len(hosts), 'host')}" if len(hosts) > 1 else ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) if began else ""
    return f"{who(choosers)}{on}{f', started {when}' if when else ''}:"


def _nothing(outcome: Agreement) -> str:
    if not outcome.choosers:
        return "Nothing was compared: no choice is recorded."
    if len(outcome.choosers) == 1:
        return f"Nothing was compared: only one process ({who(outcome.choosers)}) recorded choices."
    return NOTHING


class ChooserJson(JsonObject):
    """A rank, a process or a file that chose."""

    name: str
    source: str
    rank: int | None
    host: str
    session: str | None


class TakenJson(ChooserJson):
    """The choice that one of them took; times in milliseconds."""

    choice: str
    hash: str | None
    ms: float | None
    selected_by: str | None
    system_hash: str | None
    arch: str | None
    compute_units: int | None

    @classmethod
    def of(cls, taken: Selection) -> TakenJson:
        system = taken.system
        return fill(
            cls,
            taken,
            taken.by,
            choice=taken.choice.label,
            hash=taken.choice.hash,
            selected_by="graph" if taken.warm else taken.tuning.selected_by,
            system_hash=system.hash or None,
            arch=system.arch or None,
            compute_units=system.compute_units or None,
        )


class TakersJson(JsonObject):
    """All who took one choice."""

    choice: str
    hash: str | None
    identity: str | None
    taken: list[TakenJson]


class NotOfferedJson(JsonObject):
    choice: str
    hash: str | None
    who: list[str]


class ProposalJson(JsonObject):
    """The choice that is proposed for all; null where none is."""

    choice: str | None
    hash: str | None
    by: str | None
    not_offered: list[str]
    why_not: str | None

    @classmethod
    def of(cls, proposal: Proposal | None) -> ProposalJson | None:
        if proposal is None:
            return None
        choice = proposal.choice
        return cls(
            choice=choice.label if choice else None,
            hash=choice.hash if choice else None,
            by=proposal.by if choice else None,
            not_offered=[each.name for each in proposal.unoffered],
            why_not=proposal.why_not or None,
        )


class DifferingJson(ProblemJson):
    """A problem for which different choices were taken."""

    ratio: float | None
    standing: str | None
    loss_ms: float
    calls: int | None
    share: float | None
    loss_total_ms: float
    pinned: str | None
    groups: list[TakersJson]
    not_offered: list[NotOfferedJson]
    measured: MeasurementJson | None
    proposal: ProposalJson | None

    @classmethod
    def of(cls, differing: DifferingProblem, proposal: Proposal | None = None) -> DifferingJson:
        return fill(
            cls,
            differing,
            differing.row.tuning,
            id=differing.row.id,
            pinned=differing.pinned.hash if differing.pinned else None,
            groups=[
                TakersJson(
                    choice=group.choice.label,
                    hash=group.choice.hash,
                    identity=identity_of(group.choice),
                    taken=[TakenJson.of(each) for each in group.selections],
                )
                for group in differing.groups
            ],
            not_offered=[
                NotOfferedJson(
                    choice=choice.label, hash=choice.hash, who=[each.name for each in lacking]
                )
                for choice, lacking in differing.unoffered
            ],
            measured=MeasurementJson.of(differing.measurement),
            proposal=ProposalJson.of(proposal),
        )


class PartiesJson(JsonObject):
    """Two that chose differently, and for how many of their problems they chose the same."""

    a: list[str]
    b: list[str]
    both: int
    same: int


class AgreedPinJson(JsonObject):
    """A pin that `--pin` sets, or would set."""

    id: str
    hash: str | None
    held: bool
    state: str | None
    why_not: str | None


class AgreedPinsJson(JsonObject):
    applied: bool
    pins: list[AgreedPinJson]


class AgreementJson(Document, tag="rocm-tui/agree/1"):
    """Whether all chose the same; `pins` with `--pin` only."""

    agree: bool
    compared: int
    not_compared: int
    alone: int
    apart: int
    untold: int
    missing: tuple[int, ...]
    lacking: int
    differ: int
    choosers: list[ChooserJson]
    problems: list[DifferingJson]
    pairs: list[PartiesJson]
    running: list[str]
    pins: AgreedPinsJson | UnsetType

    @classmethod
    def of(
        cls,
        outcome: Agreement,
        proposals: Sequence[Proposal] = (),
        running: Sequence[Chooser] = (),
        pins: AgreedPinsJson | UnsetType = UNSET,
    ) -> AgreementJson:
        by_row = {id(proposal.differing): proposal for proposal in proposals}
        return fill(
            cls,
            outcome,
            differ=len(outcome.differing),
            choosers=[fill(ChooserJson, each) for each in outcome.choosers],
            problems=[DifferingJson.of(each, by_row.get(id(each))) for each in outcome.differing],
            pairs=[
                fill(
                    PartiesJson,
                    pair,
                    a=[each.name for each in pair.a],
                    b=[each.name for each in pair.b],
                )
                for pair in outcome.pairs
            ],
            running=[each.name for each in running],
            pins=pins,
        )

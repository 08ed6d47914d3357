"""The report of one job as the text and the JSON that `compare` prints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from backend.counted import counted, noun
from backend.model.inductor_kernel import is_kernel
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render import agree
from rocm_tui.render.compare import lost_text
from rocm_tui.render.table import Field, fields_of, hanging, text_table
from rocm_tui.render.tuning_json import ProblemJson
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.report.agreement import Agreement
from rocm_tui.report.job import MissingBackend, ProblemSaving, Repeated, Report, Savings
from rocm_tui.session import numbers as fmt

NOT_COMPARED = "Ranks are not compared: no two processes of one job tuned the same problem."
TO_AGREE = "`rocm-tui agree --propose` names one choice for all, and can pin it."
ALL_WORK = "Every requested backend has a choice that works."
BACKENDS_UNKNOWN = "Requested backends unknown: only sessions of `rocm-tui run` record them."
TUNED_ONCE = "No problem was tuned twice."
_FEW = 6
"""Machines, caches, logs or jobs that have sentences of their own."""
_LONG = 30 * 86400.0
"""Seconds between tunings from which it is said when they were made."""


def _short(label: str) -> str:
    return fmt.shorten(plain(label), 36)


def _seconds(seconds: float, untold: int) -> str:
    """Return the duration of tunings: `≥` if that of some is unknown."""
    if not seconds:
        return fmt.NONE
    return f"{'≥' if untold else ''}{fmt.seconds(seconds)}"


def _saved(ms: float) -> str:
    return "is ATen" if ms == 0 else fmt.duration(ms) if ms > 0 else lost_text(ms)


def _gain(gain: ProblemSaving) -> str:
    """What it saves; `tie` or `unclear` where that is no difference."""
    if gain.waited:
        return "waited"
    if gain.saved_ms is None:
        return fmt.NONE
    if gain.undecided:
        return "tie" if gain.tied else "unclear"
    return _marked(gain, _saved(gain.saved_ms))


def _in_all(gain: ProblemSaving) -> str:
    total = (gain.saved_ms or 0.0) * (gain.calls or 0)
    return _marked(gain, _saved(total)) if total and not gain.undecided else fmt.NONE


def _marked(gain: ProblemSaving, text: str) -> str:
    """`~` before what is not measured; `?` where the times are not to be believed, as in Watch."""
    mark = fmt.SUSPECT if gain.row.suspect else fmt.ONCE
    return text if gain.measured else fmt.once(text, mark)


def _gain_style(gain: ProblemSaving) -> str:
    if gain.undecided or not gain.saved_ms or not gain.measured:
        return "dim"
    return "good" if gain.saved_ms > 0 else "warn"


GAINS: tuple[Field[ProblemSaving], ...] = (
    *fields_of(PROBLEM, lambda gain: gain.row),
    Field(
        "use", "IN USE", 12, 40, drop=4, text=lambda gain: _short(gain.choice.label),
        about="the choice that most of its tunings use",
    ),
    Field(
        "saved", "SAVED", 9, 10, right=True, text=_gain, style=_gain_style,
        about="what a call takes less than ATen's; tie; unclear; waited; ~ not measured",
    ),
    Field(
        "calls", "CALLS", 5, 8, drop=5, right=True, style="dim",
        text=lambda gain: fmt.count(gain.calls), short=lambda gain: fmt.narrow_count(gain.calls),
        about="calls in one pass of the model",
    ),
    Field(
        "all", "PER PASS", 9, 10, drop=1, right=True, text=_in_all, style=_gain_style,
        about="what all calls of one pass save; ~ not measured; ? suspect",
    ),
    Field(
        "took", "TUNING", 8, 12, right=True, name="tuning took",
        text=lambda gain: _seconds(gain.seconds, gain.untold),
        about="what its tunings took; ≥: some durations are unknown",
    ),
)  # fmt: skip


def _processes(repeated: Repeated) -> str:
    count = repeated.processes
    return fmt.NONE if count is None else counted(count, "process", "processes")


REPEATED: tuple[Field[Repeated], ...] = (
    *fields_of(PROBLEM, lambda repeated: repeated.row),
    Field(
        "times", "TIMES", 5, 6, right=True, style="strong",
        text=lambda repeated: f"{repeated.times:,}×", about="how often it was tuned",
    ),
    Field("by", "BY", 9, 14, drop=1, text=_processes, style="dim", about="how many processes"),
    Field(
        "took", "TOOK MORE", 9, 12, right=True,
        text=lambda repeated: _seconds(repeated.seconds, repeated.untold),
        about="what it took beyond the first time",
    ),
    Field(
        "winners", "FASTEST", 16, 90, good=22,
        text=lambda repeated: ", ".join(
            f"{_short(label)} {times:,}×" for label, times in repeated.winners
        ),
        style=lambda repeated: "" if len(repeated.winners) > 1 else "dim",
        about="which choices had the smallest time, and how often",
    ),
)  # fmt: skip


def text(report: Report) -> str:
    """The four parts in the order of the screen's pages, each with a headline."""
    savings, again = report.savings, report.repeated
    saved = [*saved_lines(savings), text_table(GAINS, savings.gains)] if savings.gains else []
    blocks = [
        saved or ["No tuning has times to compare."],
        ["Tuned more than once:", text_table(REPEATED, again)] if again else [TUNED_ONCE],
        [*(agree.text(job) for job in report.jobs if job.differing), *rank_lines(report.jobs)],
        _missing(report.missing, report.backends_known),
    ]
    return "\n\n".join("\n".join(map(_folded, lines)) for lines in blocks)


def _folded(text: str) -> str:
    """Fold a sentence at the terminal's width; tables fit it already."""
    sentence = text.lstrip()
    return text if "\n" in text else hanging(text[: -len(sentence)], sentence)


def rank_lines(jobs: Sequence[Agreement]) -> list[str]:
    """Return what was compared in each job, and the command that makes its ranks agree."""
    if not jobs:
        return [NOT_COMPARED]
    lines = [line for job in jobs[:_FEW] for line in agree.footer(job)]
    if more := jobs[_FEW:]:
        lines.append(f"And {counted(len(more), 'more job')}.")
    return [*lines, TO_AGREE] if jobs[0].differing else lines


def _missing(backends: Iterable[MissingBackend], known: bool) -> list[str]:
    lines = []
    for backend in backends:
        lines.append(missing_line(backend))
        lines += [f"  {line}" for line in reason_lines(backend)]
    if lines:
        return ["Missing backends:", *lines]
    return [ALL_WORK if known else BACKENDS_UNKNOWN]


def missing_line(backend: MissingBackend) -> str:
    """`CK: no choice in 12 tunings (bmm, mm)`."""
    tunings = counted(backend.tunings, "tuning")
    what = f"{'all ' * (backend.failed > 1)}{counted(backend.failed, 'choice')} failed"
    what = what if backend.failed else "no choice"
    where = "" if backend.everywhere else "; other tunings have one"
    return f"{plain(backend.backend)}: {what} in {tunings} ({plain(', '.join(backend.ops))}){where}"


def reason_lines(backend: MissingBackend) -> list[str]:
    """Return a line for each reason, or one that says that none is recorded."""
    if not backend.reasons:
        why = "Its operands may be unsupported"
        if backend.backend == "CPP" and {"mm", "addmm"} & set(backend.ops):
            # What `use_cpp_gemm_template` in torch/_inductor/utils.py requires.
            why = "It needs constant weights: for inference, set TORCHINDUCTOR_FREEZING=1"
        return [f"Inductor gives no reason. {why}"]
    return [
        plain(reason.text) if not reason.count else f"{reason.count:,}× {plain(reason.text)}"
        for reason in backend.reasons
    ]


def saved_lines(savings: Savings) -> list[str]:
    """What all tunings save a pass of the model and what they cost, then what that leaves out."""
    lines = [_sentence(savings)]
    if savings.by_system:
        shown = [(fmt.shorten(plain(name), 60), own) for name, own in savings.by_system[:_FEW]]
        lines = [f"{name}: {_sentence(own)}" for name, own in shown]
        if more := [name for name, _ in savings.by_system[_FEW:]]:
            lines.append(f"And {_more_systems(more)}.")
    summed = [gain for gain in savings.valued if not gain.undecided and gain.saved_ms]
    once = sum(gain.calls is None for gain in summed)
    if once:
        what = counted(once, "problem is", "problems are")
        lines.append(f"Call count unknown: {what} counted once.")
    kinds = Counter(m.caches for gain in summed if (m := gain.row.tuning.measured) is not None)
    if len(kinds) > 1:
        lines.append(
            f"Of these problems {kinds['hot']:,} measured with hot caches and "
            f"{kinds['cold']:,} with "
            "cold ones are added up, which is not alike: measure them in one way."
        )
    lines += _unmeasured(savings)
    if savings.since and savings.until and savings.until - savings.since > _LONG:
        first, last = (
            time.strftime("%Y-%m-%d", time.localtime(when))
            for when in (savings.since, savings.until)
        )
        lines.append(f"Tuned between {first} and {last}.")
    return lines


def _more_systems(names: Iterable[str]) -> str:
    """Return `3 more caches, 1 more log`: several caches may be those of one machine."""
    kinds = Counter(
        "cache" if name.startswith("cache ") else "log" if "/" in name else "machine"
        for name in names
    )
    return ", ".join(counted(n, f"more {kind}", f"more {kind}s") for kind, n in kinds.items())


def _sentence(savings: Savings) -> str:
    saves = _saves(savings)
    took = _took(savings)
    if took is None:
        took = "time unknown" if saves.endswith(" Tuning") else "took an unknown time"
    return f"{saves} {took}{_paid(savings)}"


def _unmeasured(savings: Savings) -> list[str]:
    """What is left out of the sum, and how it gets into it."""
    count, waits = len(savings.unmeasured), sum(gain.waited for gain in savings.gains)
    if not count:
        return []
    are = counted(count, "problem is", "problems are")
    lines = [
        f"{are} left out: single timings (~) do not show what tuning saves. "
        "Press m in Watch to measure a tuning, a to measure all suspects."
    ]
    if waits:
        have = counted(waits, "of them has", "of them have")
        what = "times of whole milliseconds, as of calls that wait on a busy CPU"
        lines.append(f"{have} {what}.")
    return lines


def _saves(savings: Savings) -> str:
    """The sum, and of what it is the sum."""
    valued, count = len(savings.valued), len(savings.gains)
    once, unclear = len(savings.unmeasured), savings.unclear
    if unclear and not any(gain.saved_ms for gain in savings.valued):
        return f"Savings vs ATen: unclear for {counted(unclear, 'measured problem')}. Tuning"
    if once and not any(gain.saved_ms for gain in savings.valued):
        return "Savings vs ATen: not measured. Tuning"
    kernels = sum(is_kernel(gain.row.tuning.op) for gain in savings.gains)
    rivals = count - kernels
    alone = f"{counted(kernels, 'Triton kernel has', 'Triton kernels have')} no rival in ATen"
    if not valued and not rivals and kernels:
        return f"Savings vs ATen unknown: {alone}. Tuning"
    if not valued:
        none = "it has no" if count == 1 else f"none of {counted(rivals, 'problem')} has a"
        more = f", and {alone}" if kernels else ""
        return f"Savings vs ATen unknown: {none} time of ATen{more}. Tuning"
    sums = f"saves {fmt.duration(savings.saved_ms)}" if savings.saved_ms > 0 else "saves nothing"
    if savings.saved_ms < 0:
        sums = f"loses {fmt.duration(-savings.saved_ms)}"
    left = [f"{once:,} not measured"] if once else []
    left += [f"{unclear:,} unclear"] if unclear else []
    untold = count - valued - once - unclear - kernels
    left += [f"{untold:,} without a time of ATen"] if untold > 0 else []
    left += [f"{counted(kernels, 'Triton kernel')} without a rival there"] if kernels else []
    rest = f" ({valued:,} of {counted(count, 'problem')}: {', '.join(left)})"
    pins = sum(gain.row.pin is not None for gain in savings.gains)
    who = f"Tuning with {counted(pins, 'pin')}" if pins else "Tuning"
    return f"{who} {sums} a pass against ATen{rest if valued < count else ''} and"


def _took(savings: Savings) -> str | None:
    ranks = f" on {savings.ranks} ranks together" if savings.ranks > 1 else ""
    if savings.tunings and savings.taken == savings.tunings:
        return "took nothing here: all choices came from a cache"
    if not savings.seconds and savings.unknown:
        return None
    if savings.unknown:
        some = f"unknown for {savings.unknown:,} of {counted(savings.tunings, 'tuning')}"
        return f"took at least {fmt.seconds(savings.seconds)}{ranks} ({some})"
    return f"took {fmt.seconds(savings.seconds)}{ranks}"


def _paid(savings: Savings) -> str:
    """After how many passes it is paid for, as far as that is known."""
    runs = savings.runs_to_pay
    if runs is None:
        unknown = savings.saved_ms > 0 and len(savings.systems) < 2
        return "; passes to pay for it: unknown." if unknown else "."
    least = "at least " if savings.at_least else ""
    valued, count = len(savings.valued), len(savings.gains)
    those = "that one is" if valued == 1 else f"those {valued:,} are"
    who = f"; {those}" if valued < count else ":"
    return f"{who} paid for after {least}{runs:,.0f} {noun(round(runs), 'pass', 'passes')}."


class GainJson(ProblemJson):
    """What the choice of a problem saves against ATen's."""

    choice: str
    hash: str | None
    saved_ms: float | None
    measured: bool
    tied: bool
    unclear: bool
    waited: bool
    calls: int | None
    seconds: float
    untold: int

    @classmethod
    def of(cls, gain: ProblemSaving) -> GainJson:
        row, choice = gain.row, gain.choice
        return fill(cls, gain, row, row.tuning, choice=choice.label, hash=choice.hash)


class SavingsSumJson(JsonObject):
    """What tuning saves a pass of the model, and what it costs."""

    saved_ms: float
    seconds: float
    ranks: int
    unknown: int
    runs_to_pay: float | None
    since: float | None
    until: float | None
    tuned: int
    problems: int


class SystemSavingsJson(SavingsSumJson):
    """The sum of one machine, cache or log."""

    system: str


class SavingsJson(SavingsSumJson):
    """The sum over all problems, and each problem."""

    systems: tuple[str, ...]
    by_system: list[SystemSavingsJson]
    problems_without_aten: int
    problems_unmeasured: int
    runs_at_least: bool
    tunings: list[GainJson]

    @classmethod
    def of(cls, savings: Savings) -> SavingsJson:
        return fill(
            cls,
            savings,
            by_system=[
                fill(
                    SystemSavingsJson, own, system=name, tuned=own.tunings, problems=len(own.gains)
                )
                for name, own in savings.by_system
            ],
            tuned=savings.tunings,
            problems=len(savings.gains),
            problems_without_aten=sum(gain.saved_ms is None for gain in savings.gains),
            problems_unmeasured=len(savings.unmeasured),
            runs_at_least=savings.at_least,
            tunings=[GainJson.of(gain) for gain in savings.gains],
        )


class WinnerJson(JsonObject):
    choice: str
    times: int


class RepeatedJson(ProblemJson):
    """A problem that was tuned more than once."""

    times: int
    processes: int | None
    seconds: float
    untold: int
    winners: list[WinnerJson]

    @classmethod
    def of(cls, repeated: Repeated) -> RepeatedJson:
        winners = [WinnerJson(choice=label, times=times) for label, times in repeated.winners]
        return fill(cls, repeated, repeated.row, repeated.row.tuning, winners=winners)


class ReportJson(Document, tag="rocm-tui/report/2"):
    """Times in milliseconds and seconds; unknown values are null."""

    disagreements: list[agree.DifferingJson]
    compared_by_ranks: int
    not_compared_by_ranks: int
    missing: tuple[MissingBackend, ...]
    backends_told: bool
    saved: SavingsJson
    repeated: list[RepeatedJson]

    @classmethod
    def of(cls, report: Report) -> ReportJson:
        return cls(
            disagreements=[
                agree.DifferingJson.of(each) for job in report.jobs for each in job.differing
            ],
            compared_by_ranks=sum(job.compared for job in report.jobs),
            not_compared_by_ranks=sum(job.not_compared for job in report.jobs),
            missing=report.missing,
            backends_told=report.backends_known,
            saved=SavingsJson.of(report.savings),
            repeated=[RepeatedJson.of(each) for each in report.repeated],
        )

"""What Triton prints of its own autotuning under `TRITON_PRINT_AUTOTUNING=1`.

    Autotuning kernel matmul_kernel with config BLOCK_M: 64, num_warps: 4, ..., maxnreg: None
    Autotuning failed with out of resource: shared memory, ...
    Triton autotuning for function matmul_kernel,
    with key as (512, 512, 'torch.float16'),
    finished after 1.23s,
    best config selected: BLOCK_M: 64, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;

The first two lines come before and after each benchmark. Older versions write one line without a
key: `... matmul_kernel finished after 1.23s; best config selected: ...;`, and a fork of them ends
it with ` with benchmark time [p50, p20, p80];`. None of them says how fast the other configurations
are. Triton-Ascend does, behind that line:

    Triton autotuning benchmark results for function matmul_kernel:
      config=BLOCK_M: 64, num_warps: 4, ...; p50=0.0100 ms, p20=0.0090 ms, p80=0.0110 ms [selected]
      config=BLOCK_M: 32, num_warps: 4, ...; mean=0.0140 ms
    Triton autotuning: config=BLOCK_M: 128, ...; compile_failed; reason=CompileTimeAssertionFailure

A source without any of these lines but the first shows a tuning that has not ended.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from backend.model.choice import Choice, sort_choices
from backend.model.inductor_kernel import TRITON, dtypes_of, inputs_of
from backend.model.tuning import Seconds, State, Tuning
from rocm_tui.ingest.formats.processes import Origin

KERNEL = "Triton autotuning"
TRIED = "Autotuning kernel "
FAILED = "Autotuning failed with "
_FOR = f"{KERNEL} for function "
_REST = ("with key as ", "finished after ", "best config selected: ")
_CONFIG = "config="
LINES = (KERNEL, TRIED, FAILED, *_REST, _CONFIG)
REACH = 4096
"""Bytes behind a line in which the next one is."""


class TritonLine(NamedTuple):
    """What one line, or several, say of an autotuned kernel; None is not said.

    `tried` has the configuration that is benchmarked next, `failed` the `reason` why one has no
    time (the last that was tried, where it names none), `ended` the outcome of all, `results` the
    heading of the times, and `timed` has a configuration with its time. `config` is as it is
    printed, `times` the text of its times in milliseconds: the median or mean, and where they are
    there the 20th and 80th percentile.
    """

    kind: Literal["tried", "failed", "ended", "results", "timed"]
    name: str | None = None
    key: str | None = None
    seconds: str | None = None
    config: str | None = None
    times: tuple[str, ...] = ()
    reason: str = ""

    def then(self, later: TritonLine) -> TritonLine:
        """Return what this line and a later one say together."""
        return self._replace(
            key=self.key if later.key is None else later.key,
            seconds=self.seconds if later.seconds is None else later.seconds,
            config=later.config,
            times=later.times,
        )


_NAME = r"[A-Za-z_<][\w.<>]{0,299}"
_ENDED = re.compile(rf"{_FOR}({_NAME})")
_TRIED = re.compile(rf"{TRIED}({_NAME}) with config (.{{0,4000}})")
_RESULTS = re.compile(rf"{KERNEL} benchmark results for function ({_NAME}):")
_TIMED = re.compile(rf"{_CONFIG}(.{{0,4000}}?); (?:p50|mean)=(.*)")
_TIME = re.compile(r"(?:\A|, p\d0=)([^\s,]*) ms\b")
_STATUS = re.compile(rf"{_CONFIG}(.{{0,4000}}?); (\w{{1,40}}); reason=(.*)")
_TIMES = " with benchmark time "


def find_kernel(text: str) -> tuple[int, TritonLine] | None:
    """Return what a clean line says of an autotuned kernel, and the column where that begins."""
    tried = _TRIED.search(text)
    if tried:
        return tried.start(), TritonLine("tried", tried[1], config=tried[2].strip())
    at = text.find(FAILED)
    if at >= 0:
        return at, TritonLine("failed", reason=text[at + len(FAILED) :].strip())
    if _CONFIG in text:
        return _find_config(text)
    heading = _RESULTS.search(text)
    if heading:
        return heading.start(), TritonLine("results", heading[1])
    return _find_end(text)


def _find_config(text: str) -> tuple[int, TritonLine] | None:
    at = text.find(_CONFIG)
    status = _STATUS.match(text, at) if KERNEL in text else None
    if status:
        reason = f"{status[2]}: {status[3].strip()}"
        return at, TritonLine("failed", config=status[1], reason=reason)
    timed = _TIMED.match(text, at)
    if timed:
        return at, TritonLine("timed", config=timed[1], times=tuple(_TIME.findall(timed[2])))
    return None


def _find_end(text: str) -> tuple[int, TritonLine] | None:
    name = _ENDED.search(text)
    if name is None and _FOR in text:
        return None
    starts = [start for part in _REST if (start := text.find(part)) >= 0]
    if name is None and not starts:
        return None
    key, seconds, best = (_behind(text, part) for part in _REST)
    config, _, times = (None, "", "") if best is None else best.partition(_TIMES)
    line = TritonLine(
        "ended",
        name and name[1],
        key and key.rstrip(" ,")[:300],
        seconds and re.split("[,; ]", seconds)[0],
        config if config is None or times else _before_semicolon(config),
        tuple(_before_semicolon(times).strip("[]() ").split(", ")) if times else (),
    )
    return name.start() if name else min(starts), line


def _behind(text: str, part: str) -> str | None:
    at = text.find(part)
    return text[at + len(part) :] if at >= 0 else None


def _before_semicolon(text: str) -> str:
    """Return what a semicolon ends; without one the text is torn, and a comma shows it."""
    bare, semicolon, _ = text.partition(";")
    return bare if semicolon else f"{bare},"


_VALUE = r"'[^'\\]*'|-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:e[+-]?\d{1,2})?|True|False|None"
_KEY = re.compile(rf"\((?:(?:{_VALUE})(?:, (?:{_VALUE}))*,?)?\)")
_WORDS = {"True": True, "False": False, "None": None}


def _values(key: str) -> list[object]:
    """Return what `(512, 'torch.float16')` holds; the text itself where it is something else."""
    if not _KEY.fullmatch(key):
        return [key]
    parts: list[str] = re.findall(_VALUE, key)
    return [
        part[1:-1] if part[0] == "'" else _WORDS[part] if part in _WORDS else json.loads(part)
        for part in parts
    ]


_PIECE = r"""[^\s,;'"()\[\]{}<>]|'[^']{0,99}'|\([^;()]{0,99}\)|\[[^;\[\]]{0,99}\]|<[^;<>]{0,99}>"""
_SETTING = rf"([A-Za-z_]\w{{0,99}}): ((?:{_PIECE}){{1,300}})"
_SETTINGS = re.compile(rf"{_SETTING}(?:, {_SETTING})*\Z")
_EACH = re.compile(_SETTING)


def described(config: str) -> str | None:
    """Return `BLOCK_M: 64, num_warps: 4, maxnreg: None` as `BLOCK_M=64, num_warps=4`, without
    settings that are None; None if a part of the text is missing or is no setting."""
    config = config.strip()
    if not _SETTINGS.match(config):
        return None
    return ", ".join(f"{name}={value}" for name, value in _EACH.findall(config) if value != "None")


_SECONDS = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)s\Z")
_MS = re.compile(r"\d{1,12}(?:\.\d{1,20})?(?:e-?\d{1,2})?\Z")


@dataclass(slots=True, eq=False)
class KernelTuning:
    """One autotuning of a kernel, as far as a log shows it. `choices` is by the text of the
    configuration; `last` is that of the one which was tried last, on the line at `place`; `begun`
    is the place of its first line; `dead` is whether its process ended or went on then, or has been
    silent for long, `reported` whether that is a problem already; `origins` are the wrappers of its
    lines, of which a counter makes one each."""

    n: int
    name: str
    rank: int | None
    sources: tuple[str, ...]
    place: int
    begun: int
    key: str | None = None
    seconds: float | None = None
    choices: dict[str, Choice] = field(default_factory=dict)
    last: str = ""
    selected: str | None = None
    tried: int = 0
    dead: bool = False
    reported: bool = False
    origins: set[Origin] = field(default_factory=set)

    def tuning(self, open_: bool) -> Tuning:
        """Return the tuning as read so far; `open_` if more may come."""
        over = self.selected is not None or (self.timed and not self.tried)
        state: State = "done" if over else "running" if open_ and not self.dead else "cut"
        choices = list(self.choices.values())
        taken = None if self.selected is None else self.choices[self.selected]
        if taken is not None and taken.ms is None:
            if self.timed:  # the time that is missing is that of the fastest
                state = "cut"
            else:
                choices = [taken]
        if len(choices) > 1 or self.timed:  # a name that the others have names none of them
            choices = [replace(c, name=c.description.replace(", ", " ")) for c in choices]
        return Tuning(
            op=TRITON,
            inputs_key=self.name
            if self.key is None
            else inputs_of(self.name, _values(self.key), ""),
            dtypes=dtypes_of(_values(self.key or "()")),
            choices=sort_choices(choices),
            num_choices=self.tried or None,
            seconds=Seconds(benchmark=self.seconds),
            state=state,
            timed=self.tried - 1 if state == "running" else 0,
            selected_by="timing" if over else None,
            rank=self.rank,
            sources=self.sources,
        )

    @property
    def timed(self) -> bool:
        """Whether the log has a time of any configuration."""
        return any(choice.ms is not None for choice in self.choices.values())


class KernelLog:
    """Collects what each process says of its kernels.

    `number` gives the number of a new tuning, `report` takes what is wrong with a line.
    """

    def __init__(
        self,
        source: str,
        number: Callable[[], int],
        report: Callable[[str, int, str], None],
    ) -> None:
        self._sources = (source,)
        self._number = number
        self._report = report
        self._begun: dict[Origin, TritonLine] = {}
        self._open: dict[Origin, dict[str, KernelTuning]] = {}
        self._alike: dict[tuple[_Kind, str], dict[KernelTuning, None]] = {}
        self._ended: dict[Origin, dict[str, KernelTuning]] = {}
        self._current: dict[Origin, KernelTuning] = {}
        self._current_alike: dict[_Kind, Counter[KernelTuning]] = {}

    def take(self, line: TritonLine, who: Origin, place: int) -> list[KernelTuning]:
        """Take what a line of a process says; return the tunings that it changed."""
        kernel = self._take(line, who, place)
        if kernel is None:
            return []
        over = kernel.selected is not None
        return [kernel, *(self.passed(who, kernel.begun) if over else ())]

    def passed(self, who: Origin, begun: int) -> list[KernelTuning]:
        """Return the tunings of a process of which no line came since the one that began at a place
        and has ended: they do not end."""
        left = [k for k in self._open.get(who, {}).values() if k.place < begun and not k.reported]
        for kernel in left:
            kernel.dead = True
            self._report_unfinished(kernel)
        return left

    def _take(self, line: TritonLine, who: Origin, place: int) -> KernelTuning | None:
        if line.kind == "ended":
            return self._end(line, who, place)
        if line.kind == "results":
            name = line.name or ""
            ended = {at: of[name] for at, of in self._ended.items() if name in of}
            alike = {kernel for at, kernel in ended.items() if _kind(at) == _kind(who)}
            kernel = _only(who, ended, alike) or self._new(name, who, place)
            self._ended.setdefault(who, {})[name] = kernel
            self._set_current(who, kernel)
            return None
        if line.kind == "tried":
            return self._tried(line, who, place)
        current = _only(who, self._current, self._current_alike.get(_kind(who), ()))
        if line.kind == "failed":
            return self._failed(line, current, place)
        return None if current is None else self._timed(line, current, place)

    def unfinished(self, who: Origin | None = None) -> list[KernelTuning]:
        """Return the tunings of a process, or of all, whose end is not there, oldest first."""
        kernels = [
            kernel
            for at, of_process in self._open.items()
            if who is None or who.akin(at)
            for kernel in of_process.values()
        ]
        return sorted(dict.fromkeys(kernels), key=lambda kernel: kernel.n)

    def finish(self) -> None:
        """Report the tunings that did not end."""
        for kernel in self.unfinished():
            if not kernel.reported:
                self._report_unfinished(kernel)

    def _report_unfinished(self, kernel: KernelTuning) -> None:
        kernel.reported = True
        what = f"the autotuning of {kernel.name} does not end; last configuration: {kernel.last}"
        self._report("unfinished", kernel.place, what)

    def _new(self, name: str, who: Origin, place: int) -> KernelTuning:
        return KernelTuning(self._number(), name, who.rank, self._sources, place, place)

    def _tried(self, line: TritonLine, who: Origin, place: int) -> KernelTuning | None:
        name, text = line.name or "", self._described(line, line.name, place)
        if text is None:
            return None
        kernel = self._open.get(who, {}).get(name)
        if kernel is None:
            like = self._like(who, name)
            kernel = next((k for k in like if text not in k.choices), None)
            kernel = kernel or self._new(name, who, place)
            self._open.setdefault(who, {})[name] = kernel
            self._alike.setdefault((_kind(who), name), {})[kernel] = None
            kernel.origins.add(who)
        self._set_current(who, kernel)
        kernel.last, kernel.place = text, place
        kernel.dead = kernel.reported = False
        if text not in kernel.choices:
            kernel.tried += 1
            kernel.choices[text] = Choice(name=name, description=text)
        return kernel

    def _like(self, who: Origin, name: str) -> Iterable[KernelTuning]:
        """Return the open tunings of the kernel whose lines may be of the same process."""
        return self._alike.get((_kind(who), name), ())

    def _set_current(self, who: Origin, kernel: KernelTuning) -> None:
        alike = self._current_alike.setdefault(_kind(who), Counter())
        before = self._current.get(who)
        if before is not None:
            alike[before] -= 1
            if not alike[before]:
                del alike[before]
        alike[kernel] += 1
        self._current[who] = kernel

    def _failed(
        self, line: TritonLine, kernel: KernelTuning | None, place: int
    ) -> KernelTuning | None:
        if kernel is None:
            if "out of resource" in line.reason:  # other programs tune, too
                self._report("failed configuration", place, f"{FAILED}{line.reason}")
            return None
        what = FAILED if line.config is None else f"{kernel.name}: "
        self._report("failed configuration", place, what + line.reason)
        text = kernel.last
        if line.config is not None:
            text = self._described(line, kernel.name, place) or ""
        if not text:
            return None
        failed = not line.reason.startswith("not_")  # `not_evaluated`: it was stopped before
        reason = line.reason[:300] if failed else None
        kernel.choices[text] = Choice(kernel.name, None, None, text, failed, reason)
        return kernel

    def _timed(self, line: TritonLine, kernel: KernelTuning, place: int) -> KernelTuning | None:
        text = self._described(line, kernel.name, place)
        times = self._milliseconds(line, kernel.name, place)
        if text is None or times is None:
            return None
        kernel.choices[text] = _timed_choice(kernel.name, text, times)
        return kernel

    def _end(self, line: TritonLine, who: Origin, place: int) -> KernelTuning | None:
        if line.name is None:
            begun = _nearest(who, self._begun)
            if begun is None:
                return None  # prose, or the rest of what was cut off
            line, who = self._begun[begun].then(line), begun
        if line.config is None:
            self._begun[who] = line
            return None
        self._begun.pop(who, None)
        name, text = line.name or "", self._described(line, line.name, place)
        if text is None:
            return None
        kernel = self._open.get(who, {}).get(name)
        if kernel is None:
            like = (k for k in self._like(who, name) if text in k.choices)
            kernel = next(like, None) or self._new(name, who, place)
        for at in kernel.origins:
            del self._open[at][name]
            if not self._open[at]:
                del self._open[at]
            self._alike.get((_kind(at), name), {}).pop(kernel, None)
        kernel.origins.clear()
        self._ended.setdefault(who, {})[name] = kernel
        self._set_current(who, kernel)
        kernel.key, kernel.selected = line.key, text
        seconds = _SECONDS.match(line.seconds or "")
        if seconds:
            kernel.seconds = float(seconds[1])
        elif line.seconds is not None:
            self._report("torn", place, f"{name} finished after no time: {line.seconds[:50]}")
        times = self._milliseconds(line, name, place) if line.times else None
        kernel.choices[text] = _timed_choice(name, text, times or ())
        return kernel

    def _described(self, line: TritonLine, name: str | None, place: int) -> str | None:
        text = described(line.config or "")
        if text is None:
            what = f"a configuration of {name or 'a kernel'} cannot be read: "
            self._report("torn", place, what + (line.config or "").rstrip(",")[-100:])
        return text

    def _milliseconds(self, line: TritonLine, name: str, place: int) -> tuple[float, ...] | None:
        if line.times and all(map(_MS.match, line.times)):
            return tuple(map(float, line.times))
        what = f"a time of {name} is no number: {', '.join(line.times)[:100]}"
        self._report("torn", place, what)
        return None


def _nearest(who: Origin, known: Collection[Origin]) -> Origin | None:
    """Return the known process that wrote a line: the same one, else the only one if it may be."""
    if who in known:
        return who
    only = next(iter(known)) if len(known) == 1 else None
    if only is None or who.akin(only):
        return only
    return only if only.rank == who.rank and only.differing(who) else None


def _only(
    who: Origin, kernels: Mapping[Origin, KernelTuning], alike: Collection[KernelTuning]
) -> KernelTuning | None:
    """Return the kernel of the process that wrote a line; else the only one of those whose lines
    begin as this one, but for numbers."""
    near = _nearest(who, kernels)
    if near is not None:
        return kernels[near]
    return next(iter(alike)) if len(alike) == 1 else None


_NUMBERS = re.compile(r"\d+")
_Kind = tuple[str, int | None, str]


@lru_cache(256)
def _kind(who: Origin) -> _Kind:
    """What wrappers of one rank share that differ in numbers alone, which may be counters."""
    return who.shape, who.rank, _NUMBERS.sub("0", " ".join(who.words))


def _timed_choice(name: str, text: str, times: tuple[float, ...]) -> Choice:
    """Return the choice of a configuration with `times` milliseconds: none, one, or the median and
    the 20th and 80th percentile."""
    return Choice(
        name=name,
        description=text,
        ms=times[0] if times else None,
        quantiles=(times[1], times[2]) if len(times) == 3 else None,
    )

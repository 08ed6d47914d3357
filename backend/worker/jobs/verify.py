"""Verification that the code generated for an op calls the pinned choice.

The op is rebuilt from its inputs key and compiled as a user would: caches warm, nothing special
set. Before that it is compiled without graph caches and with the pinned choice as the only one, and
the two generated sources are compared. Equal sources call the same kernel; if they differ, each
other choice is compiled alone to identify the one called. Each compile ends as soon as the source
is known: no kernel is built or run, nothing is benchmarked, and no cache entry is written.

A worker may verify several pins: each compile begins with the state of a fresh process, since
torch.compile is reset, caches are read from disk again, and threads are set again. The source of
one choice alone depends on no file and is kept. The caller must know the irreversible changes: our
templates, a precision that was set, the mode; and `spent` reports a failed compile.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from backend.counted import counted
from backend.inductor.hooks.environment import separate_graphs
from backend.inductor.hooks.pins import PinLookup
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller, generated_code
from backend.model.origin import is_own, kind_of
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import VerifyJob, VerifyResult
from backend.worker.boundary import why_not_offered
from backend.worker.problem import (
    rebuild_key,
    set_precision,
    set_threads,
    settings_of,
    template_choices,
)
from backend.worker.protocol import ReportProgress
from backend.worker.rebuilt import NotRebuildable, RebuiltProgram


class PinNotCalled(Exception):
    """The pinned choice was not called, as far as seen; the message is one line."""


class NotInThisMode(PinNotCalled):
    """Inductor was not tuned in this mode: its choices differ from those in the cache. The mode
    only changes hashes of Triton choices: if none is `offered`, no other mode need be tried."""

    def __init__(self, reason: str, offered: Iterable[str]) -> None:
        super().__init__(reason)
        self.conclusive = not any(kind_of(hash) == "triton" for hash in offered)


class DoesNotCompile(PinNotCalled):
    """It does not compile; a failed compile leaves the process in an unknown state."""


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """One compile: the generated source, comparable; and the selections."""

    code: str
    sight: ObservedSelections


def run(job: VerifyJob, progress: ReportProgress, mark: ChoiceMark) -> VerifyResult:
    """Verify. Raises JobInvalid if there is no such mode."""
    settings, modes = settings_of(job.mode), len(torch_api.MODES)
    set_threads(job.threads)
    try:
        with _current(job.gpu):
            result = _Verification(job, settings, progress).result()
        return replace(result, modes=modes, torch=str(torch.__version__))
    except NotInThisMode as error:
        return VerifyResult(False, str(error), error.conclusive, modes)
    except DoesNotCompile as error:
        return VerifyResult(False, str(error), spent=True, modes=modes)
    except NotRebuildable as error:
        return VerifyResult(False, str(error), rebuilt=False, modes=modes)
    except PinNotCalled as error:
        return VerifyResult(False, str(error), modes=modes)


@contextlib.contextmanager
def _current(gpu: int | None) -> Iterator[None]:
    """A context in which torch uses that GPU. Raises PinNotCalled."""
    if gpu is None:
        yield
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpu >= count:
        raise PinNotCalled(
            f"torch sees {counted(count, 'GPU')} here, and none with the index {gpu}"
        )
    with torch.cuda.device(gpu):
        yield


class _AloneKey(NamedTuple):
    key: TuningKey
    hash: str
    recorded: str
    mode: tuple[tuple[str, bool], ...]
    threads: int
    gpu: int | None


MOST_ALONE = 100
_alone: dict[_AloneKey, GeneratedCode] = {}
"""Sources compiled with a single choice, for the next verification of its pin."""


class _Verification:
    def __init__(
        self, job: VerifyJob, settings: Mapping[str, bool], progress: ReportProgress
    ) -> None:
        self._key = job.key
        self._pinned = job.hash
        self._options = job.options
        self._gpu = job.gpu
        self._progress = progress
        self._mode = settings
        templates = is_own(job.hash)
        if templates:  # their graphs are kept separate
            separate_graphs()
        self._selector = ProbeSelector(templates)

    def result(self) -> VerifyResult:
        program = rebuild_key(self._key, [self._pinned], self._options)
        set_precision(self._key)
        torch_api.set_selector(self._selector)
        self._progress(f"compiling {self._key.op} with the pinned choice alone")
        alone = self._alone(program, self._pinned)
        names = self._offered(alone.sight)
        self._progress(f"compiling {self._key.op} as a program would, caches warm")
        usual = self._compile(program, only=None)
        if usual.sight.untimed:
            raise NotInThisMode(
                "the autotune cache lacks a time for some of its choices, so torch would tune it "
                "again, unless they fail again where it compiles them ahead: `rocm-tui tune ID` "
                "keeps that they failed; then verify",
                names,
            )
        if not usual.code:
            raise PinNotCalled("Inductor generated no code for it")
        called = self._called(program, usual, alone, names)
        how = "as compiled now" if usual.sight.offered else "as found in the compiled-graph cache"
        proof = (
            f"the generated code, {how}, equals that of {names.get(called or '')} compiled alone "
            f"({counted(len(names), 'choice')})"
        )
        if called == self._pinned:
            return VerifyResult(True, kernel=names[called], hash=called, proof=proof)
        if called is None:
            reason = (
                f"the generated code, {how}, is that of none of the {counted(len(names), 'choice')}"
            )
            return VerifyResult(False, reason)
        reason = f"the generated code calls {names[called]}, not {names[self._pinned]}"
        return VerifyResult(False, reason, kernel=names[called], hash=called, proof=proof)

    def _offered(self, sight: ObservedSelections) -> dict[str, str]:
        """Return the key's choices. Raises PinNotCalled for another key, or a missing choice."""
        if self._key not in sight.offered:
            tuned = "; ".join(f"{key.op} {key.inputs}" for key in sight.offered) or "nothing"
            raise NotRebuildable(
                f"{self._key.op} cannot be rebuilt from its inputs key: Inductor tuned {tuned}"
            )
        names = sight.offered[self._key]
        if self._pinned not in names:
            why = why_not_offered(self._pinned, names) or (
                "C++ choices of dynamic shapes, or for another number of threads, have hashes of "
                "their own"
            )
            raise NotInThisMode(
                f"{self._pinned} is none of the {counted(len(names), 'choice')} that this torch "
                f"offers ({', '.join(sorted(names.values()))}) for these sizes, fixed, and "
                f"{counted(torch.get_num_threads(), 'thread')}: {why}",
                (self._pinned, *names),
            )
        return names

    def _called(
        self,
        program: RebuiltProgram,
        usual: GeneratedCode,
        alone: GeneratedCode,
        names: dict[str, str],
    ) -> str | None:
        """Return the hash of the choice whose code `usual` is."""
        if usual.code == alone.code:
            return self._pinned
        for other, name in names.items():
            if other != self._pinned:
                self._progress(f"comparing with {name}")
                if self._alone(program, other).code == usual.code:
                    return other
        return None

    def _alone(self, program: RebuiltProgram, hash: str) -> GeneratedCode:
        """Return the code with that choice as the only one; cached, since it depends on no file."""
        mode = tuple(sorted(self._mode.items()))
        circumstances = _AloneKey(
            self._key, hash, self._options, mode, torch.get_num_threads(), self._gpu
        )
        compiled = _alone.get(circumstances)
        if compiled is None:
            compiled = self._compile(program, only=hash)
            if compiled.code:
                while len(_alone) >= MOST_ALONE:
                    del _alone[next(iter(_alone))]
                _alone[circumstances] = compiled
        return compiled

    def _compile(self, program: RebuiltProgram, only: str | None) -> GeneratedCode:
        """Compile up to the source. Raises DoesNotCompile if that fails for its own reason, and
        NotRebuildable if it fails before any op is tuned."""
        self._selector.sight = sight = ObservedSelections()
        self._selector.only = None if only is None else (self._key, only)
        settings = torch_api.compile_settings(
            {**self._mode, **program.settings},
            freezing=program.freezing,
            graph_cache=only is None,
        )
        compiled = program.compiled()
        try:
            with settings:
                code = generated_code(lambda: compiled(*program.arguments))
        except Exception as error:  # a compiler error is the job's result
            lacking = only is not None and only not in sight.offered.get(self._key, {})
            if lacking and not sight.offered:  # it reached no op, which says nothing about the key
                trouble = torch_api.describe(error)
                raise NotRebuildable(f"{self._key.op} does not compile: {trouble}") from error
            if sight.untimed or lacking:
                return GeneratedCode("", sight)
            raise DoesNotCompile(f"it does not compile: {torch_api.describe(error)}") from error
        return GeneratedCode(_comparable(code), sight)


_COMMENT = re.compile(r"\s*(?:#(?!include|define|pragma|if|el|endif)|$)")
_CONSTANT = re.compile(r"(\w+ = None)  # device\(.*")


def _comparable(code: str) -> str:
    """Return generated code without the comments and addresses that differ between compiles."""
    lines = code.splitlines()
    return "\n".join(_CONSTANT.sub(r"\1", line) for line in lines if not _COMMENT.match(line))


@dataclass
class ObservedSelections:
    """The selections of one compile, by key: names of the choices by hash."""

    offered: dict[TuningKey, dict[str, str]] = field(default_factory=dict)
    untimed: list[TuningKey] = field(default_factory=list)
    """Keys that stock torch would have benchmarked, because the cache lacks a choice."""


class ProbeSelector(torch_api.LazySelector):
    """The stock selector, which only observes: it refuses to benchmark. It offers all choices, or
    for one key only the choice with the hash in `only`.

    With `templates` it also offers our choices and honours pins, as under `rocm-tui run
    --templates`.
    """

    def __init__(self, templates: bool = False) -> None:
        super().__init__()
        self._pins = PinLookup() if templates else None
        self.sight = ObservedSelections()
        self.only: tuple[TuningKey, str] | None = None

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        only = self.only[1] if self.only is not None and self.only[0] == key else None
        if self._pins is not None:
            choices = [*choices, *template_choices(name, choices, input_nodes, layout)]
            pin = self._pins.find(key, torch_api.system_hash())
            only = only or (pin.hash if pin else None)
        self.sight.offered[key] = {choice.hash_key(): choice.name for choice in choices}
        if only is not None:
            choices = [choice for choice in choices if choice.hash_key() == only]
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def lookup(
        self,
        choices: list[ChoiceCaller],
        op: str,
        inputs: str,
        benchmark: Callable[..., Any] | None,
        **kwargs: Any,
    ) -> Any:
        def refuse(_: Any) -> Any:
            self.sight.untimed.append(TuningKey(op, inputs, torch_api.precision()))
            raise RuntimeError("not benchmarked: a check must not change the cache")

        return super().lookup(choices, op, inputs, benchmark and refuse, **kwargs)

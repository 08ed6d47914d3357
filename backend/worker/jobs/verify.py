"""Does the code that Inductor generates for an op really call the pinned choice?

The op is rebuilt from its inputs key and compiled as a user would: caches warm, nothing special
set. Before that it is compiled without graph caches and with the pinned choice as the only one, and
the two generated sources are compared. Equal sources call the same kernel; if they differ, each
other choice is compiled alone to say which one it is. Each compile ends as soon as the source is
known: no kernel is built or run, nothing is benchmarked, and no entry of a cache is written.

A worker may verify one pin after another: each compile begins with what a fresh process would find,
since torch.compile is reset, caches are read from disk again, and threads are set anew. What a
process cannot take back is for the caller to know: our templates, a precision that was set, the
mode; and `spent` tells of a compile that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.hooks import environment as templates_wanted
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import generated_code
from backend.records import TuningKey
from backend.store.graph_match import is_own, kind_of
from backend.worker.probe import ProbeSelector, Sight
from backend.worker.protocol import Arguments, Progress, text_argument
from backend.worker.rebuild import NotRebuildable, Rebuilt, rebuild
from backend.worker.settings import (
    key_argument,
    mode_argument,
    set_precision,
    set_threads,
    specs_of,
)


class NotVerified(Exception):
    """The pinned choice was not seen to be called; one line says why."""


class NotInThisMode(NotVerified):
    """Inductor was not tuned in this mode: it has other choices than those in the cache.

    The mode changes hashes of Triton choices alone: with none `offered`, no other need be tried.
    """

    def __init__(self, reason: str, offered: Iterable[str]) -> None:
        super().__init__(reason)
        self.conclusive = not any(kind_of(hash) == "triton" for hash in offered)


class NotCompiled(NotVerified):
    """It does not compile; what a failed compile leaves in the process is not known."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compile: the generated source, comparable; and what the selector was asked."""

    code: str
    sight: Sight


def run(arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """Arguments: `op`, `inputs`, `precision`, `hash`, all texts; `mode`, an index of the `MODES`;
    `threads`, see `set_threads`. The last two are optional.

    The result: `ok`; `kernel`, the name of the choice that is called, `hash` its hash, where they
    are known; `proof`, how that was seen; `reason`, why it is not ok; `rebuilt`, false for an op
    that cannot be; `conclusive`, whether the cache was tuned in this mode. If not, try another of
    the `modes` that there are: torch keeps what it made for one mode, so each needs a process of
    its own. `spent`: the next pin needs another process.
    """
    key, pinned = key_argument(arguments), text_argument(arguments, "hash")
    mode = mode_argument(arguments)
    set_threads(arguments)
    try:
        return _result(**_Verification(key, pinned, mode, progress).result())
    except NotInThisMode as error:
        return _result(ok=False, reason=str(error), conclusive=error.conclusive)
    except NotCompiled as error:
        return _result(ok=False, reason=str(error), spent=True)
    except NotRebuildable as error:
        return _result(ok=False, reason=str(error), rebuilt=False)
    except NotVerified as error:
        return _result(ok=False, reason=str(error))


def _result(**found: Any) -> dict[str, Any]:
    nothing = {"kernel": None, "hash": None, "proof": "", "reason": ""}
    usual = {"rebuilt": True, "conclusive": True, "spent": False, "modes": len(torch_api.MODES)}
    return {**nothing, **usual, **found}


class _Verification:
    def __init__(self, key: TuningKey, pinned: str, mode: int, progress: Progress) -> None:
        self._key = key
        self._pinned = pinned
        self._progress = progress
        self._mode = torch_api.MODES[mode]
        ours = is_own(pinned)
        if ours:  # their graphs are kept apart
            templates_wanted.separate_graphs()
        self._selector = ProbeSelector(templates=ours)

    def result(self) -> dict[str, Any]:
        program = rebuild(self._key.op, specs_of(self._key))
        set_precision(self._key)
        torch_api.set_selector(self._selector)
        self._progress(f"compiling {self._key.op} with the pinned choice alone")
        alone = self._compile(program, only=self._pinned)
        names = self._offered(alone.sight)
        self._progress(f"compiling {self._key.op} as a program would, caches warm")
        usual = self._compile(program, only=None)
        if usual.sight.untimed:
            raise NotInThisMode(
                "the autotune cache lacks a time for some of its choices, so torch would tune it "
                "again: run the program once, then verify",
                names,
            )
        if not usual.code:
            raise NotVerified("Inductor generated no code for it")
        called = self._called(program, usual, alone, names)
        how = "as compiled now" if usual.sight.offered else "as found in the compiled-graph cache"
        proof = (
            f"the generated code, {how}, equals that of {names.get(called or '')} compiled alone "
            f"({len(names)} choices)"
        )
        if called == self._pinned:
            return {"ok": True, "kernel": names[called], "hash": called, "proof": proof}
        if called is None:
            reason = f"the generated code, {how}, is that of none of the {len(names)} choices"
            return {"ok": False, "reason": reason}
        reason = f"the generated code calls {names[called]}, not {names[self._pinned]}"
        return {
            "ok": False,
            "kernel": names[called],
            "hash": called,
            "proof": proof,
            "reason": reason,
        }

    def _offered(self, sight: Sight) -> dict[str, str]:
        """The choices of our key. Raises NotVerified if the op is another, or lacks the pin's."""
        if self._key not in sight.offered:
            asked = "; ".join(f"{key.op} {key.inputs}" for key in sight.offered) or "nothing"
            raise NotRebuildable(
                f"{self._key.op} cannot be rebuilt from its inputs key: Inductor was asked for "
                f"{asked}"
            )
        names = sight.offered[self._key]
        if self._pinned not in names:
            raise NotInThisMode(
                f"{self._pinned} is none of the {len(names)} choices that this torch offers "
                f"({', '.join(sorted(names.values()))}) for these sizes, fixed, and "
                f"{torch.get_num_threads()} threads: C++ choices of dynamic shapes, or for another "
                "number of threads, have hashes of their own",
                (self._pinned, *names),
            )
        return names

    def _called(
        self, program: Rebuilt, usual: Compiled, alone: Compiled, names: dict[str, str]
    ) -> str | None:
        """The hash of the choice whose code `usual` is."""
        if usual.code == alone.code:
            return self._pinned
        for other, name in names.items():
            if other != self._pinned:
                self._progress(f"comparing with {name}")
                if self._compile(program, only=other).code == usual.code:
                    return other
        return None

    def _compile(self, program: Rebuilt, only: str | None) -> Compiled:
        """Compile up to the source. Raises NotCompiled if that fails for a reason of its own."""
        self._selector.sight = sight = Sight()
        self._selector.only = None if only is None else (self._key, only)
        settings = torch_api.compile_settings(
            self._mode, freezing=program.freezing, graph_cache=only is None
        )
        compiled = torch.compile(program.function, dynamic=False)
        try:
            with settings:
                code = generated_code(lambda: compiled(*program.arguments))
        except Exception as error:  # whatever the compiler raises is the job's answer
            if sight.untimed or (only is not None and only not in sight.offered.get(self._key, {})):
                return Compiled("", sight)
            raise NotCompiled(f"it does not compile: {torch_api.describe(error)}") from error
        return Compiled(_comparable(code), sight)


_COMMENT = re.compile(r"\s*(?:#(?!include|define|pragma|if|el|endif)|$)")
_CONSTANT = re.compile(r"(\w+ = None)  # device\(.*")


def _comparable(code: str) -> str:
    """Generated code without what differs from one compile to the next: comments and addresses."""
    lines = code.splitlines()
    return "\n".join(_CONSTANT.sub(r"\1", line) for line in lines if not _COMMENT.match(line))

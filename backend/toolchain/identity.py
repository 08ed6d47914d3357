"""The names of what is compiled and of what compiles it, made of content: no path goes in.

A kernel's name in the code cache is `<source>-<toolchain>`. The first is known where there is no
compiler; the second also stands in the name of a choice, whose times are those of one toolchain.
Both have the headers. The same toolchain has the same name on every machine.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from backend.toolchain import targets
from backend.toolchain.target import INCLUDE, Compiler, Options, Target, TargetKind

_FORMAT = 2
_COMMON = "rocm_tui"
"""The folder of headers that kernels include, beside one of each kind of target."""


def source_key(source: str, target: Target, options: Options) -> str:
    """Of what is known without a compiler, the features of this machine's CPU included."""
    features = targets.instruction_set() if target.kind == "cpu" else ()
    how = (options.level, options.defines, options.flags, *_given(options))
    return _digest(source, headers_hash(target.kind), str(target), how, features)[:40]


def _given(options: Options) -> tuple[object, ...]:
    """What a kernel needs beside our headers; nothing for those of our templates."""
    if not options.headers and not options.standard:
        return ()
    return (options.standard, [headers.digest for headers in options.headers])


def toolchain_of(compiler: Compiler, options: Options = Options()) -> str:  # noqa: B008
    """Of all that makes a library out of a source: headers, command, the compiler's version."""
    # Three folders up from the program is ROCm's, which stands in its command.
    nameless = replace(compiler, executable=(f"/ROCM/llvm/bin/{compiler.driver}",))
    places = Path("SOURCE"), Path("OUTPUT"), options.nameless, Path("INCLUDE")
    command = targets.commands(nameless, *places)
    target = compiler.target
    return _digest(headers_hash(target.kind), command, compiler.version, str(target))[:16]


def cache_key(source: str, compiler: Compiler, options: Options) -> str:
    """The name in the code cache."""
    made = source_key(source, compiler.target, options)
    return f"{made}-{toolchain_of(compiler, options)}"


@lru_cache(maxsize=3)
def headers_hash(kind: TargetKind) -> str:
    """Of the headers that a kernel for this kind of target can include."""
    digest = hashlib.sha256()
    for folder in (_COMMON, kind):
        for header in sorted((INCLUDE / folder).rglob("*.h")):
            text = header.read_bytes()
            digest.update(f"{header.relative_to(INCLUDE).as_posix()}\0{len(text)}\0".encode())
            digest.update(text)
    return digest.hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([_FORMAT, *parts]).encode()).hexdigest()

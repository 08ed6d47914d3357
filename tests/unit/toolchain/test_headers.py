"""Kernels that include headers of somebody else: what goes into their keys, what is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import CompileError, HeadersError
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, Headers, cpu
from backend.toolchain.targets import require

SOURCE = """
#include <hip/hip_runtime.h>
#include <rocm_tui/target.h>
#include <their/answer.hpp>
#if defined(OLD) && __cplusplus > 201703L
#error the standard that was asked for is another
#endif
RT_EXPORT int ask() { return answer(); }
"""


def folder(path: Path, answer: int) -> Path:
    (path / "their").mkdir(parents=True)
    (path / "their" / "answer.hpp").write_text(f"inline int answer() {{ return {answer}; }}\n")
    return path


def options(path: Path, **more: object) -> CompileOptions:
    return CompileOptions(level=0, headers=(Headers.of(path),), **more)  # type: ignore[arg-type]


def answer(given: CompileOptions, root: Path) -> tuple[int, bool]:
    """What the kernel returns, and whether it was in the cache already."""
    compiled = code_cache.compile(SOURCE, cpu(), given, cache_root=root)
    return code_cache.load(compiled.path, root).entry("ask")(), compiled.from_cache


def test_the_content_counts_and_not_the_place(tmp_path: Path) -> None:
    here, there = folder(tmp_path / "here", 42), folder(tmp_path / "there", 42)
    other = folder(tmp_path / "other", 43)
    assert answer(options(here), tmp_path / "cache") == (42, False)
    assert answer(options(there), tmp_path / "cache") == (42, True)
    assert answer(options(other), tmp_path / "cache") == (43, False)
    plain, given = CompileOptions(level=0), options(here)
    assert code_cache.source_key(SOURCE, cpu(), plain) != code_cache.source_key(
        SOURCE, cpu(), given
    )
    compiler = require(cpu())
    assert code_cache.toolchain_of(compiler, plain) != code_cache.toolchain_of(compiler, given)


def test_headers_that_changed_since_they_were_read_are_refused(tmp_path: Path) -> None:
    given = options(folder(tmp_path / "here", 1))
    (tmp_path / "here" / "their" / "answer.hpp").write_text("inline int answer() { return 2; }\n")
    with pytest.raises(HeadersError, match="have changed since they were read"):
        answer(given, tmp_path / "cache")
    with pytest.raises(HeadersError, match="there is no folder"):
        Headers.of(tmp_path / "nowhere")


def test_the_standard_is_the_callers(tmp_path: Path) -> None:
    path, old = folder(tmp_path / "here", 7), (("OLD", "1"),)
    assert answer(options(path, defines=old, standard="c++17"), tmp_path / "cache")[0] == 7
    with pytest.raises(CompileError, match="the standard that was asked for is another"):
        answer(options(path, defines=old), tmp_path / "cache")

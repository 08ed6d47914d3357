"""Compiles one kernel of Triton's for gfx942, which needs no GPU; prints how often it compiled."""

from __future__ import annotations

from typing import Any

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.compiler import ASTSource  # type: ignore[import-not-found]


@triton.jit  # type: ignore[untyped-decorator]
def add_one(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)


class Counted(ASTSource):  # type: ignore[misc]
    made = 0

    def make_ir(self, *args: Any, **kwargs: Any) -> Any:
        Counted.made += 1
        return super().make_ir(*args, **kwargs)


signature = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
triton.compile(Counted(add_one, signature, {(2,): 128}), target=GPUTarget("hip", "gfx942", 64))
print(Counted.made)

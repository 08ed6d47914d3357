"""A small model on a GPU whose kernels Inductor tunes, and what its own log says of that.

A block of a transformer, forward and backward, with a loss, and a kernel of `@triton.autotune`.
Arguments: `NAME=VALUE` of `torch._inductor.config`, and `width=N`. Prints one JSON object: `timed`,
how many configs the log says were timed, by kernel; `tuned`, how often each kernel's list was;
`launched`, the configs of the kernels that were launched; `seconds` of all.
"""

from __future__ import annotations

import collections
import gc
import json
import logging
import re
import sys
import time
from typing import Any

import torch
import torch._inductor.config as config
import triton
import triton.language as tl


class Log(logging.Handler):
    """Inductor's lines: a headline for each kernel, then its configs; descent has lines alone."""

    def __init__(self) -> None:
        super().__init__()
        self.timed: collections.Counter[str] = collections.Counter()
        self.tuned: collections.Counter[str] = collections.Counter()
        self._kernel = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if match := re.match(r"Benchmark all input configs for (\w+), get:", text):
            self._kernel = match[1]
            self.tuned[match[1]] += 1
        elif str(record.msg).startswith("%s: %f, nreg"):
            self.timed[self._kernel] += 1
        elif str(record.msg).startswith("COORDESC: "):
            self.timed["descent"] += 1


configs = [triton.Config({"BLOCK": size}, num_warps=w) for size in (128, 512, 2048) for w in (2, 4)]


@triton.autotune(configs=configs, key=["n"])
@triton.jit
def swish_kernel(x, y, n, BLOCK: tl.constexpr) -> None:  # noqa: ANN001
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, value * tl.sigmoid(value), mask=at < n)


def swish(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    n = x.numel()
    swish_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
    return y


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.behind = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.into, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = (
            torch.nn.Linear(width, 4 * width),
            torch.nn.Linear(4 * width, width),
        )
        self.words = torch.nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(self.before(x)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8, -1)
        x = x + torch.nn.functional.dropout(self.out(weights @ v), 0.1)
        x = x + self.narrow(torch.nn.functional.gelu(self.wide(self.behind(x))))
        logits = self.words(x).float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def launched() -> dict[str, str]:
    """By kernel, of those that have run."""
    found = {}
    for thing in gc.get_objects():
        if type(thing).__name__ == "CachingAutotuner" and len(thing.launchers) == 1:
            found[thing.fn.__name__] = text_of(thing.launchers[0].config)
    return found


def text_of(made: Any) -> str:
    members = {**dict(sorted(made.kwargs.items()))}
    members |= {"num_warps": made.num_warps, "num_stages": made.num_stages}
    return ", ".join(f"{name}={value}" for name, value in members.items())


def main(arguments: list[str]) -> None:
    from torch._inductor.runtime import triton_heuristics

    begin, log, width = time.perf_counter(), Log(), 768
    triton_heuristics.log.setLevel(logging.DEBUG)
    triton_heuristics.log.addHandler(log)
    triton_heuristics.log.propagate = False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "width":
            width = int(value)
        else:
            setattr(config, name, json.loads(value))
    torch.manual_seed(0)
    block = Block(width).cuda().bfloat16()
    x = torch.randn(8, 256, width, device="cuda", dtype=torch.bfloat16)
    words = torch.randint(1000, (8, 256), device="cuda")
    loss = torch.compile(block)(x, words)
    loss.backward()
    torch.compile(lambda x: swish(x) + 1)(x.detach())
    torch.cuda.synchronize()
    told = {
        "timed": log.timed,
        "tuned": log.tuned,
        "launched": launched(),
        "loss": loss.item(),
        "seconds": time.perf_counter() - begin,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What real graphs look like to Inductor, and what it makes of them when they are read again.

`same MODE NAME...` compiles models, captures each graph, compiles what was captured, and prints a
JSON line for each graph: whether both times the same code was generated, and what a pass leaves.
`program SOURCE` prints the code of the one graph of a program, as this process's caches have it.
`arm FILE SWAPS` prints the code of a captured graph, with choices of a JSON list in place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor import compile_fx, config, output_code
from torch.nn.attention.flex_attention import flex_attention

from backend.inductor.torch import captured
from backend.model.graph import Swap
from backend.worker.jobs.trial import compile_arm
from backend.worker.trial.drawn import drawn_constants, drawn_inputs
from backend.worker.trial.passes import kernels_of
from backend.worker.trial.program import program_of


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mask = torch.ones(16, 16, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-1, -2)).masked_fill(~mask, float("-inf")).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(2, 16, 32))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(50, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return F.dropout(self.linear(self.table(x)), 0.5, self.training).relu()


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.linear = nn.MaxPool2d(2), nn.Linear(128, 4)

    def forward(self, x: Any) -> Any:
        return self.linear(self.pool(self.norm(self.conv(x)).relu()).flatten(1))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))


def _experts(x: Any, w: Any, chosen: Any) -> Any:
    return F.gelu(torch.einsum("td,tdf->tf", x, w[chosen])) * torch.tensor([1.5, 2.0, 0.5, 1.0])


def _rows(x: Any, k: Any) -> Any:
    k.add_(1)
    return (x * x.shape[0] @ k).view(-1, 2)


def _attend(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    def alibi(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + (j - i) * slopes[h]

    return flex_attention(q, k * 2, v, score_mod=alibi).transpose(1, 2)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (_mlp, lambda: (torch.randn(8, 32),)),
    "attention": (Attention, lambda: (torch.randn(2, 16, 32),)),
    "embedding": (Embedded, lambda: (torch.randint(0, 50, (4, 6)),)),
    "conv": (Pooled, lambda: (torch.randn(2, 3, 8, 8),)),
    "experts": (
        lambda: _experts,
        lambda: (torch.randn(6, 8), torch.randn(3, 8, 4), torch.randint(0, 3, (6,))),
    ),
    "flex": (
        lambda: _attend,
        lambda: (*(torch.randn(1, 2, 16, 8) for _ in "qkv"), torch.rand(2)),
    ),
    "rows": (lambda: _rows, lambda: (torch.randn(6, 8), torch.randn(8, 4))),
}


_COMMENT = re.compile(r"\s*(?:#(?!include|define|pragma|if|el|endif)|$)")


def _comparable(code: str) -> str:
    """Without comments, and without what runs a graph alone."""
    lines = re.split(r"def (?:get_args|benchmark_compiled_module)", code)[0].splitlines()
    named = (re.sub(r"(\w+ = None)  # .*", r"\1", line) for line in lines)
    plain = "\n".join(line for line in named if not _COMMENT.match(line))
    symbols: dict[str, str] = {}
    return re.sub(r"\bk?s\d+\b", lambda m: symbols.setdefault(m[0], f"size{len(symbols)}"), plain)


def _same(mode: str, names: list[str]) -> None:
    seen: list[tuple[str, str]] = []
    frozen: list[str] = []
    stock = compile_fx._compile_fx_inner

    def watched(gm: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        text = frozen.pop() if frozen else captured.graph_text(gm, inputs, kwargs)
        compiled = stock(gm, inputs, *args, **kwargs)
        seen.append((text, compiled.source_code))
        return compiled

    def note(gm: Any, inputs: Any) -> None:
        which = captured.frozen_inputs()
        frozen.append(captured.graph_text(gm, inputs, {"is_inference": True}, frozen=which))

    freezing = compile_fx.fw_compiler_freezing
    for name in names:
        make, arguments = CASES[name]
        torch.manual_seed(0)
        torch._dynamo.reset()
        seen.clear()
        compile_fx._compile_fx_inner = watched
        captured.around_freezing(note, frozen.clear)
        model = make()
        compiled = torch.compile(model, dynamic=mode == "dynamic")
        if mode == "train":
            compiled(*arguments()).sum().backward()
        else:
            if isinstance(model, nn.Module):
                model.eval()
            with torch.no_grad(), config.patch(freezing=mode == "freezing"):
                compiled(*arguments())
        compile_fx._compile_fx_inner, compile_fx.fw_compiler_freezing = stock, freezing
        for text, code in seen:
            program = program_of(text)
            inputs = drawn_inputs(program)
            arm = compile_arm(program, drawn_constants(program), inputs, (), stock=False)
            given = [value for value in arm.call(list(inputs)) if isinstance(value, torch.Tensor)]
            result = {
                "name": name,
                "kind": program.head.kind,
                "same": _comparable(arm.code) == _comparable(code),
                "finite": all(bool(value.float().isfinite().all()) for value in given),
                "kernels": kernels_of(arm.code),
                "mutated": sorted(arm.mutated - arm.donated),
            }
            _say(json.dumps(result))


def _program(source: str) -> None:
    codes: list[str] = []
    stock = output_code.CompiledFxGraph.post_compile

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        codes.append(self.source_code)

    output_code.CompiledFxGraph.post_compile = post_compile
    exec(source, {})
    _say(_comparable(codes[0]))


def _arm(file: str, swaps: str) -> None:
    program = program_of(Path(file).read_text())
    arm = tuple(Swap(*swap) for swap in json.loads(swaps))
    weights = drawn_inputs(program)
    made = compile_arm(program, drawn_constants(program), weights, arm, stock=False)
    _say(_comparable(made.code))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "same":
        _same(words[0], words[1:] or list(CASES))
    elif what == "program":
        _program(*words)
    else:
        _arm(*words)

"""Programs that each hold one op that Inductor tunes, compiled by stock PyTorch on the CPU.

`python tuned_ops.py [FLAG | NAME]...` compiles each and prints one JSON line a tuning: the program,
the op, the inputs key, and the hashes of the choices that were offered. Most ops have one choice
here, so that nothing is timed; the graph is no other for that. A flag counts for what stands behind
it: `--cpp-wrapper`, `--threads=N`, `--backends=ATEN,CPP`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHEAP = (
    "mm addmm baddbmm int_mm mm_plus_mm convolution convolution_backward scaled_mm grouped_mm"
    " int8_weights int4_weights"
).split()
"""Programs without a C++ template, which takes long to compile."""


@dataclass(frozen=True)
class Offered:
    """One tuning: what a program asked for and what there was to choose from."""

    program: str
    op: str
    inputs: str
    choices: tuple[str, ...]


def compile_ops(arguments: Sequence[str], cache: Path, python: Sequence[str] = ()) -> list[Offered]:
    """Compile programs below `cache`; by default in a fork of a process with PyTorch imported."""
    from tests.support.torch_models import child_env
    from tests.support.warm_python import warm_python

    child = subprocess.run(
        [*(python or warm_python()), __file__, *arguments],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    rows = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    return [Offered(**{**row, "choices": tuple(row["choices"])}) for row in rows]


def _programs() -> dict[str, Any]:
    import torch
    from torch._inductor import config
    from torch.nn import functional as f

    torch.manual_seed(0)
    r, compiled = torch.randn, torch.compile

    def i8(*sizes: int) -> Any:
        return torch.randint(-5, 5, sizes, dtype=torch.int8)

    def bf(*sizes: int) -> Any:
        return r(*sizes).bfloat16()

    def mm() -> None:
        compiled(lambda a, b: torch.relu(a @ b))(r(64, 128), r(128, 96))

    def addmm() -> None:
        compiled(torch.addmm)(r(96), r(64, 128), r(128, 96))

    def bmm() -> None:
        compiled(lambda a, b: torch.relu(torch.bmm(a, b)))(r(4, 32, 64), r(4, 64, 96))

    def frozen_bmm() -> None:
        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(r(4, 64, 96))

            def forward(self, x: Any) -> Any:
                return torch.relu(torch.bmm(x, self.weight))

        with torch.no_grad(), config.patch(freezing=True):
            compiled(Model().eval())(r(4, 32, 64))

    def bmm_any_batch() -> None:
        a, b = r(4, 32, 64), r(4, 64, 96)
        torch._dynamo.mark_dynamic(a, 0)
        torch._dynamo.mark_dynamic(b, 0)
        compiled(lambda a, b: torch.bmm(a, b) + 1)(a, b)

    def baddbmm() -> None:
        compiled(torch.baddbmm)(r(4, 32, 96), r(4, 32, 64), r(4, 64, 96))

    def int_mm() -> None:
        compiled(lambda a, b: torch._int_mm(a, b) + 1)(i8(64, 128), i8(128, 96))

    def mm_plus_mm() -> None:
        a, b = r(64, 128), r(128, 96)
        compiled(lambda a, b, c, d: a @ b + c @ d)(a, b, a + 1, b + 1)

    def convolution() -> None:
        x, w, b = r(2, 8, 16, 16), r(16, 8, 3, 3), r(16)
        compiled(lambda x, w, b: torch.relu(f.conv2d(x, w, b, padding=1)))(x, w, b)

    def convolution_backward() -> None:
        layer = torch.nn.Conv2d(8, 16, 3, padding=1)
        compiled(layer)(r(2, 8, 16, 16, requires_grad=True)).sum().backward()

    def scaled_mm() -> None:
        a = r(64, 128).to(torch.float8_e4m3fn)
        b = r(96, 128).to(torch.float8_e4m3fn).t()
        one = torch.tensor(1.0)

        def forward(a: Any, b: Any, s: Any, t: Any) -> Any:
            return torch._scaled_mm(a, b, s, t, out_dtype=torch.bfloat16)

        compiled(forward)(a, b, one, one.clone())

    def grouped_mm() -> None:
        ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32)
        compiled(lambda a, b, e: torch._grouped_mm(a, b, e))(bf(64, 128), bf(4, 128, 96), ends)

    def int8_weights() -> None:
        compiled(lambda a, w, s: torch._weight_int8pack_mm(a, w, s))(
            bf(64, 128), i8(96, 128), bf(96)
        )

    def int4_weights() -> None:
        weights = torch.randint(0, 15, (96, 128), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weights, 1)

        def forward(a: Any, w: Any, s: Any) -> Any:
            return torch.ops.aten._weight_int4pack_mm_for_cpu(a, w, 32, s)

        compiled(forward)(bf(64, 128), packed, bf(4, 96, 2))

    def flex_attention() -> None:
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = (r(1, 4, 128, 64) for _ in "qkv")
        with torch.no_grad():
            compiled(lambda q, k, v: flex_attention(q, k, v))(q, k, v)

    def packed_linear() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU()).eval()
        with torch.no_grad(), config.patch(freezing=True):
            compiled(model)(r(64, 256))

    def linear_unary() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU()).eval().bfloat16()
        with torch.no_grad(), config.patch(freezing=True):
            compiled(model)(bf(64, 256))

    def linear_binary() -> None:
        layer = torch.nn.Linear(256, 512).eval().bfloat16()
        with torch.no_grad(), config.patch(freezing=True):
            compiled(lambda x, y: layer(x) + y)(bf(64, 256), bf(64, 512))

    def package() -> None:
        class Model(torch.nn.Module):
            def forward(self, a: Any, b: Any) -> Any:
                return torch.relu(torch.bmm(a, b))

        program = torch.export.export(Model(), (r(4, 32, 64), r(4, 64, 96)))
        # What lies below the cache dir is the same, but for the library made of it.
        with config.patch({"aot_inductor.package_cpp_only": True}):
            torch._inductor.aoti_compile_and_package(program)

    return {name: program for name, program in locals().items() if callable(program)}


def main(arguments: list[str]) -> None:
    import torch
    from torch._inductor import config, select_algorithm

    config.max_autotune = True
    config.max_autotune_gemm_backends = "ATEN,CPP"
    config.cpp_cache_precompile_headers = False  # so few compiles are not worth it
    selector: Any = select_algorithm.AlgorithmSelectorCache
    original = selector.__call__
    program = ""

    def spy(self: Any, name: str, choices: Any, nodes: Any, *rest: Any, **more: Any) -> Any:
        inputs = repr([self.key_of(node) for node in nodes])
        hashes = [choice.hash_key() for choice in choices]
        row = {"program": program, "op": name, "inputs": inputs, "choices": hashes}
        print(json.dumps(row), flush=True)
        return original(self, name, choices, nodes, *rest, **more)

    selector.__call__ = spy
    programs = _programs()
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if flag == "--cpp-wrapper":
            config.cpp_wrapper = True
        elif flag == "--threads":
            config.cpp.threads = int(value)
        elif flag == "--backends":
            config.max_autotune_gemm_backends = value
        else:
            program = argument
            torch._dynamo.reset()
            programs[program]()


if __name__ == "__main__":
    main(sys.argv[1:])

"""A process of its own for test_measure_job: every choice of three ops, run as `measure` runs it.

Prints a line of JSON an op: how many choices, how far their results differ, whether moved tensors
lie elsewhere.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from backend.inductor.sampling import bytes_at_random_offset
from backend.inductor.torch import tuning as torch_api
from backend.model.options import options_of_values
from backend.model.problem import Shape, TensorSpec, TuningKey
from backend.worker.capture import Operands, SelectorCall, capture, copied_operands
from backend.worker.jobs.verify import ProbeSelector
from backend.worker.problem import RebuiltProgram, contiguous, rebuild
from tests.support.cpu_offers import onednn_takes_bfloat16

_TOLD = {
    "linear_unary": options_of_values(
        "linear_unary", {"attr": "none", "scalars": [], "algorithm": "", "frozen": [1]}
    )
}
"""What their keys do not tell."""


def main() -> None:
    bmm = [_spec((4, 32, 64)), _spec((4, 64, 96), (6144, 1, 64))]
    linear = [_spec((32, 96)), _spec((1459233, 1)), _spec((64, 96))]
    bfloat = [_spec((32, 96), dtype="torch.bfloat16"), _spec((64, 96), dtype="torch.bfloat16")]
    cases = [("bmm", bmm), ("packed_linear", linear)]
    if onednn_takes_bfloat16():
        cases.append(("linear_unary", bfloat))
    for op, specs in cases:
        program = rebuild(op, specs, _TOLD.get(op, ()))
        caught = capture(program, _key(program), (), torch_api.MODES[0], templates=False)
        question = caught.question
        first = question.operands(list(question.choices))
        second = copied_operands(first, bytes_at_random_offset)
        results = [*_results(question, first), *_results(question, second)]
        scale = results[0].abs().max()
        told = {
            "op": op,
            "choices": len(question.choices),
            "failed": caught.failed,
            "error": max(float((one - results[0]).abs().max() / scale) for one in results),
            "elsewhere": not _places(first) & _places(second),
            "like": _layouts(first) == _layouts(second),
        }
        print(json.dumps(told))


def _spec(sizes: Shape, strides: Shape | None = None, dtype: str = "torch.float32") -> TensorSpec:
    return TensorSpec("cpu", dtype, sizes, strides or contiguous(sizes), 0)


def _key(program: RebuiltProgram) -> TuningKey:
    """What Inductor asks about: how large a packed weight is, the library decides."""
    asked: list[TuningKey] = []

    class Selector(ProbeSelector):
        def __call__(
            self, name: str, choices: Any, nodes: Any, layout: Any, *args: Any, **options: Any
        ) -> Any:
            asked.append(torch_api.tuning_key(name, nodes, layout, {}))
            raise RuntimeError("enough")

    torch_api.set_selector(Selector())
    mode = torch_api.MODES[0]
    with torch_api.compile_settings(mode, freezing=program.freezing, graph_cache=False):
        try:
            with torch.no_grad():
                torch.compile(program.function, dynamic=False)(*program.arguments)
        except Exception:
            return asked[0]
    raise AssertionError("Inductor asked nothing")


def _results(question: SelectorCall, operands: Operands) -> list[torch.Tensor]:
    found = []
    for hash, (*_, out) in operands.items():
        out.fill_(-7)
        given = question.run_function(hash, operands)()
        found.append((given if isinstance(given, torch.Tensor) else out).float().clone())
    return found


def _strided(operands: Operands) -> list[torch.Tensor]:
    every = [tensor for tensors in operands.values() for tensor in tensors]
    return [tensor for tensor in every if tensor.layout is torch.strided]


def _places(operands: Operands) -> set[int]:
    return {tensor.data_ptr() for tensor in _strided(operands)}


def _layouts(operands: Operands) -> list[object]:
    return [(t.dtype, t.size(), t.stride()) for t in _strided(operands)]


if __name__ == "__main__":
    main()

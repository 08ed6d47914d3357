"""Private names of torch for compiling a captured graph: stand-ins for its inputs, and Inductor.

Read in torch 2.8 to 2.15 (`torch/_inductor/compile_fx.py`, `output_code.py`,
`fx/experimental/symbolic_shapes.py`, `_subclasses/fake_tensor.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._functorch._aot_autograd.schemas import MutationType
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx as _compile_fx
from torch._inductor import config
from torch._inductor.cudagraph_utils import BoxedDeviceIndex
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from backend.inductor.torch.captured import flex_op, functions_of
from backend.inductor.torch.settings import Scalar
from backend.wire.captured import Head
from backend.wire.flex import FUNCTIONS, JOINT, MASK, SCORE

Size = Any
"""An int, or a torch.SymInt."""


class StandIns:
    """Tensors without memory, some of whose sizes may be open."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        shapes = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
        self.symbols: dict[str, Size] = {}
        for name, hint in symbols.items():
            source = ConstantSource(f"__{name}")
            symbol = shapes.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
            self.symbols[name] = shapes.create_symintnode(symbol, hint=hint, source=source)

    def tensor(
        self,
        sizes: Sequence[Size],
        strides: Sequence[Size],
        dtype: torch.dtype,
        device: torch.device,
        offset: Size,
    ) -> Tensor:
        with self.mode:
            if type(offset) is int and offset == 0:
                return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
            reach = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) + 1
            base = torch.empty(offset + reach, dtype=dtype, device=device)
            return base.as_strided(sizes, strides, offset)

    def spread(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Let each node of the graph know what tensor it stands for. Raises what an op raises."""
        with torch.no_grad(), enable_python_dispatcher():
            FakeTensorProp(module, mode=self.mode).propagate_dont_convert_inputs(*inputs)
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, Tensor):
                node.meta["tensor_meta"] = _extract_tensor_metadata(value)
            if flex_op(node.target):
                self._spread_functions(module, node)

    def _spread_functions(self, module: torch.fx.GraphModule, call: Any) -> None:
        """They get a score, four places in the matrix of scores, the gradient, and what they
        read."""
        query = call.args[0].meta["val"]
        score_reads, mask_reads = (
            [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in reads]
            for reads in call.args[-2:]
        )
        with self.mode:
            score = torch.empty((), dtype=query.dtype, device=query.device)
            places = [torch.empty((), dtype=torch.int32, device=query.device) for _ in "bhqk"]
        given = {
            SCORE: [score, *places, *score_reads],
            JOINT: [score, *places, score, *score_reads],
            MASK: [*places, *mask_reads],
        }
        for name, function in zip(FUNCTIONS[flex_op(call.target)], functions_of(call), strict=True):
            self.spread(module.get_submodule(function), given[name])


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """`call` takes a list of inputs, which it empties. `code` is the wrapper that was generated;
    `mutated` are the inputs that a call writes to, of which nobody reads the `donated` ones
    afterwards."""

    call: Callable[[list[Any]], Sequence[Any]]
    code: str
    mutated: frozenset[int] = frozenset()
    donated: frozenset[int] = frozenset()


def compile_graph(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    stand_ins: StandIns,
    head: Head,
    settings: Mapping[str, Scalar],
    weights: Sequence[Any],
    *,
    graph_cache: bool,
) -> CompiledGraph:
    """As the program had it compiled, but that nothing is captured into a CUDA graph.

    `inputs` are stand-ins; `weights` the inputs themselves, for those that become constants.
    """
    caches: dict[str, Any] = {}
    if not graph_cache:
        caches = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    frozen = frozenset(head.frozen) if head.freezing else frozenset()
    params = [weights[at] for at in range(max(frozen, default=-1) + 1)]
    context = traced(stand_ins.mode, head.donated, params, frozen)
    with config.patch({**settings, **caches}), torch.no_grad(), context:
        stand_ins.spread(module, inputs)
        if head.freezing:
            return _compile_frozen(module, inputs, stand_ins, frozen)
        options: dict[str, Any] = {
            "static_input_idxs": list(head.static),
            "cudagraphs": BoxedBool(False),
            "is_backward": head.kind == "backward",
            "is_inference": head.kind == "inference",
            "cpp_wrapper": head.cpp_wrapper,
            "layout_opt": head.layout,
        }
        compiled: Any = _compile_fx.compile_fx_inner(module, list(inputs), **options)
    donated = frozenset(head.donated)
    return CompiledGraph(compiled, _code(compiled), _mutated(compiled) | donated, donated)


def _compile_frozen(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    stand_ins: StandIns,
    frozen: frozenset[int],
) -> CompiledGraph:
    """Through what turns parameters into constants and packs them."""
    made: list[Any] = []

    def inner(*args: Any, **kwargs: Any) -> Any:
        made.append(
            _compile_fx.compile_fx_inner(*args, **{**kwargs, "cudagraphs": BoxedBool(False)})
        )
        return made[-1]

    options: dict[str, Any] = {"num_example_inputs": len(inputs), "inner_compile": inner}
    if "compiler_config_extra" in signature(_compile_fx.fw_compiler_freezing).parameters:
        options["compiler_config_extra"] = _compile_fx.create_compiler_config_extra(module)
    else:
        options |= {"cudagraphs": BoxedBool(False), "graph_id": 0}
        options["forward_device"] = BoxedDeviceIndex(None)
    with V.set_fake_mode(stand_ins.mode):
        call = _compile_fx.fw_compiler_freezing(module, list(inputs), module, **options)
    kept = [at for at in range(len(inputs)) if at not in frozen]
    mutated = frozenset(kept[at] for at in _mutated(made[-1]))
    return CompiledGraph(call, _code(made[-1]), mutated)


def _code(compiled: Any) -> str:
    return str(getattr(compiled, "source_code", ""))


def _mutated(compiled: Any) -> frozenset[int]:
    return frozenset(getattr(compiled, "mutated_input_idxs", None) or ())


@contextlib.contextmanager
def traced(
    mode: FakeTensorMode, donated: Sequence[int], params: Sequence[Any], frozen: frozenset[int]
) -> Iterator[None]:
    """Inductor asks the context which inputs of a backward graph it may write into, and which
    become constants: those that are parameters and that nobody changes."""
    context: Any = TracingContext(mode)
    context.fw_metadata = SimpleNamespace(
        bw_donated_idxs=list(donated),
        static_input_indices=[],
        output_info=[],
        input_info=[
            SimpleNamespace(
                mutation_type=MutationType.NOT_MUTATED
                if at in frozen
                else MutationType.MUTATED_IN_GRAPH
            )
            for at in range(len(params))
        ],
    )
    context.params_flat = list(params)
    context.params_flat_unwrap_subclasses = list(params)
    context.params_unwrapped_to_flat_index = list(range(len(params)))
    with tracing(context):
        yield

"""Private names of torch for compiling a captured graph, or a recorded call of flex attention; for
writing such a call as text while it is lowered; and for simulating an absent AMD GPU.

Tensors on such a GPU have no memory (torch's fake tensors), and nothing is run. A process that has
simulated one does so to its end.

Checked with torch 2.8 to 2.15 (`torch/_inductor/compile_fx.py`, `output_code.py`, `kernel/flex/`,
`torch/_higher_order_ops/flex_attention.py`, `fx/experimental/symbolic_shapes.py`,
`_subclasses/fake_tensor.py`). Importing this module imports torch._inductor.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.source import ConstantSource
from torch._functorch._aot_autograd.schemas import MutationType
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx as _compile_fx
from torch._inductor import config
from torch._inductor.cudagraph_utils import BoxedDeviceIndex
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.fx_passes import joint_graph
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from backend.inductor.torch.captured import (
    NotCapturable,
    Scalar,
    flex_op,
    function_text,
    functions_of,
)
from backend.model.problem import TensorSpec
from backend.toolchain.target import amdgpu
from backend.wire.captured import (
    FUNCTIONS,
    JOINT,
    MASK,
    MOST_FLEX_TEXT,
    SCORE,
    FlexCall,
    Head,
    flex_text,
)

Size = Any
"""An int, or a torch.SymInt."""


class FakeTensors:
    """Tensors without memory, some of whose sizes may be symbols."""

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
        """Set the tensor of each node of the graph. Raises an op's errors."""
        with torch.no_grad(), enable_python_dispatcher():
            FakeTensorProp(module, mode=self.mode).propagate_dont_convert_inputs(*inputs)
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, Tensor):
                node.meta["tensor_meta"] = _extract_tensor_metadata(value)
            if flex_op(node.target):
                self._spread_functions(module, node)

    def _spread_functions(self, module: torch.fx.GraphModule, call: Any) -> None:
        """Set the tensors in a call's functions, whose inputs are a score, four positions in the
        matrix of scores, the gradient, and captured tensors."""
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
    """`call` takes a list of inputs, which it empties. `code` is the generated wrapper; `mutated`
    are the inputs that a call writes to, of which the `donated` ones are not read afterwards."""

    call: Callable[[list[Any]], Sequence[Any]]
    code: str
    mutated: frozenset[int] = frozenset()
    donated: frozenset[int] = frozenset()


class Identity(CustomGraphPass):  # type: ignore[misc]
    """A pass that changes nothing: its text becomes part of the key of compiled graphs."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, graph: torch.fx.Graph) -> None:
        return None

    def uuid(self) -> str:
        return self._text


def compile_graph(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    stand_ins: FakeTensors,
    head: Head,
    settings: Mapping[str, Scalar],
    weights: Sequence[Any],
    *,
    graph_cache: bool,
    identity: str = "",
) -> CompiledGraph:
    """Compile a graph like the program, except that nothing is captured into a CUDA graph. `inputs`
    are placeholders; `weights` are the actual inputs, for the placeholders that become
    constants. With an `identity` the cache holds the graph under that text."""
    caches: dict[str, Any] = {}
    if not graph_cache:
        caches = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    elif identity:
        caches = {"fx_graph_cache": True, "post_grad_custom_post_pass": Identity(identity)}
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
    stand_ins: FakeTensors,
    frozen: frozenset[int],
) -> CompiledGraph:
    """Compile through the freezing that turns parameters into constants and packs them."""
    compiled: list[Any] = []

    def inner(*args: Any, **kwargs: Any) -> Any:
        compiled.append(
            _compile_fx.compile_fx_inner(*args, **{**kwargs, "cudagraphs": BoxedBool(False)})
        )
        return compiled[-1]

    options: dict[str, Any] = {"num_example_inputs": len(inputs), "inner_compile": inner}
    if "compiler_config_extra" in signature(_compile_fx.fw_compiler_freezing).parameters:
        options["compiler_config_extra"] = _compile_fx.create_compiler_config_extra(module)
    else:
        options |= {"cudagraphs": BoxedBool(False), "graph_id": 0}
        options["forward_device"] = BoxedDeviceIndex(None)
    with V.set_fake_mode(stand_ins.mode):
        call = _compile_fx.fw_compiler_freezing(module, list(inputs), module, **options)
    kept = [at for at in range(len(inputs)) if at not in frozen]
    mutated = frozenset(kept[at] for at in _mutated(compiled[-1]))
    return CompiledGraph(call, _code(compiled[-1]), mutated)


def _code(compiled: Any) -> str:
    return str(getattr(compiled, "source_code", ""))


def _mutated(compiled: Any) -> frozenset[int]:
    return frozenset(getattr(compiled, "mutated_input_idxs", None) or ())


@contextlib.contextmanager
def traced(
    mode: FakeTensorMode, donated: Sequence[int], params: Sequence[Any], frozen: frozenset[int]
) -> Iterator[None]:
    """A context in which Inductor learns which inputs of a backward graph it may write into, and
    which become constants: unchanged parameters."""
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


def call_text() -> str:
    """Return the call being lowered, for a record; empty if it is another op."""
    node: Any = getattr(V.graph, "current_node", None)
    name = flex_op(getattr(node, "target", None))
    if not name:
        return ""
    try:
        text = flex_text(_Writer(node, name).call())
    except NotCapturable as error:
        return flex_text(FlexCall(reason=str(error)))
    if len(text) > MOST_FLEX_TEXT:
        return flex_text(FlexCall(reason="its functions are too long"))
    return text


class _Writer:
    def __init__(self, node: Any, name: str) -> None:
        self._node, self._name = node, name
        self._tensors: dict[Any, TensorSpec] = {}
        self._functions: dict[str, str] = {}

    def call(self) -> FlexCall:
        """Build the call. Raises NotCapturable."""
        parts = ", ".join(map(self._part, self._node.args))
        if self._node.kwargs:
            raise NotCapturable("its arguments have names")
        return FlexCall(
            f"{self._name}({parts})", tuple(self._tensors.values()), dict(self._functions)
        )

    def _part(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self._named(value)
        if isinstance(value, dict):
            pairs = (f"{str(key)!r}: {self._part(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, (tuple, list)):
            parts = [self._part(each) for each in value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is float and math.isfinite(value):
            return repr(value)
        raise NotCapturable(f"one of its arguments is a {type(value).__name__}")

    def _named(self, node: Any) -> str:
        if node.op == "get_attr":
            module = getattr(V.graph.module, str(node.target), None)
            if isinstance(module, torch.fx.GraphModule):
                return self._function(module)
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise NotCapturable("it has sizes that may vary: compile with dynamic=False")
        if not isinstance(value, torch.Tensor):
            raise NotCapturable(f"its argument {node.name} is a {type(value).__name__}")
        self._tensors.setdefault(node, _spec(node, value))
        return f"t{list(self._tensors).index(node)}"

    def _function(self, module: Any) -> str:
        names = FUNCTIONS[self._name]
        if len(self._functions) == len(names):
            raise NotCapturable("it has more functions than are known")
        name = names[len(self._functions)]
        try:
            self._functions[name] = function_text(module)
        except NotCapturable as error:
            raise NotCapturable(f"{name}: {error}") from error
        return name


def _spec(node: Any, value: torch.Tensor) -> TensorSpec:
    """Return Inductor's layout of a tensor, else the graph's."""
    sizes: Sequence[Any] = value.shape
    strides: Sequence[Any] = value.stride()
    offset: Any = value.storage_offset()
    lowered = V.graph.env.get(node)
    layout = getattr(lowered, "maybe_get_layout", lambda: None)()
    if layout is not None:
        sizes, strides, offset = layout.size, layout.stride, layout.offset
    numbers = [_number(each) for each in (*sizes, *strides, offset)]
    rank = len(sizes)
    return TensorSpec(
        str(value.device),
        str(value.dtype),
        tuple(numbers[:rank]),
        tuple(numbers[rank:-1]),
        numbers[-1],
    )


def _number(value: Any) -> int:
    try:
        fixed = not getattr(value, "free_symbols", ())
        return int(value) if fixed and not isinstance(value, torch.SymInt) else _open()
    except TypeError:
        return _open()


def _open() -> int:
    raise NotCapturable("it has sizes that may vary: compile with dynamic=False")


def compile_call(
    module: torch.fx.GraphModule, inputs: Sequence[Tensor], *, backward: bool
) -> Callable[[list[Tensor]], object]:
    """Compile a graph of one call, as Inductor gets it, with the current settings; return a
    function of a list of inputs, which it empties. Raises Inductor's errors."""
    stand_ins = FakeTensors({})
    stands = [
        stand_ins.tensor(given.shape, given.stride(), given.dtype, given.device, 0)
        for given in inputs
    ]
    with torch.no_grad(), traced(stand_ins.mode, (), (), frozenset()):
        stand_ins.spread(module, stands)
        compiled: Any = _compile_fx.compile_fx_inner(
            module,
            stands,
            static_input_idxs=[],
            cudagraphs=BoxedBool(False),
            is_backward=backward,
            is_inference=not backward,
        )
    return compiled  # type: ignore[no-any-return]


ABSENT_GPU_SETTINGS: Mapping[str, object] = {
    "max_autotune_gemm_backends": "ATEN",
    "max_autotune_conv_backends": "ATEN",
    "shape_padding": False,
}
"""Settings with which torch generates no choices of its own and times nothing before selection. One
key selects what is already padded."""

_HIP = "0.0"
"""The HIP version for a torch built without HIP."""


def pretend_gpu(arch: str, compute_units: int) -> None:
    """Simulate a GPU of this kind as `cuda` in this process, by the name that ROCm's runtime gives
    (`gfx942:sramecc+:xnack-`)."""
    target = amdgpu(arch)
    numbers = re.fullmatch(r"gfx(\d+)([0-9a-f])[0-9a-f]", target.arch)
    major, minor = (int(numbers[1]), int(numbers[2], 16)) if numbers else (0, 0)
    facts = SimpleNamespace(
        name=target.arch,
        gcnArchName=arch,
        multi_processor_count=compute_units,
        major=major,
        minor=minor,
        warp_size=target.wave,
        total_memory=1 << 36,
    )
    torch.version.hip = torch.version.hip or _HIP
    torch.cuda.get_device_properties = lambda device=None: facts
    interface = get_interface_for_device("cuda")
    interface.get_device_properties = staticmethod(torch.cuda.get_device_properties)
    register = joint_graph.lazy_init  # its patterns use real tensors on that device
    joint_graph.lazy_init = lambda device=None: register(None)


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """A context in which new tensors have no numbers and no gradients."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        yield

"""The text of a graph that Inductor is about to compile, in the format of PyTorch's repro writer;
which of its inputs must stay below a size, because they are indices, or must add up to one; and
Inductor's options as a program has set them.

Read in torch 2.8 to 2.15 (`torch/_dynamo/repro/after_aot.py`, `_dynamo/debug_utils.py`,
`_inductor/compile_fx.py`, `_inductor/config.py`, `torch/utils/_config_module.py`). That writer is
not called itself: it keeps small weights, asks the machine what it has, and writes whatever the
process has of Triton kernels and options.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import MutationType
from torch._guards import TracingContext
from torch._inductor import compile_fx as _compile_fx
from torch._inductor import config
from torch._ops import OpOverload as OpOverload

from backend.counted import counted
from backend.inductor.torch.tuning import precision, threads
from backend.model.graph import GraphKind
from backend.wire.captured import FINALE, FUNCTIONS, MODES, PRELUDE, Head, head_line

NAMESPACES = frozenset(
    "aten prims inductor inductor_prims quantized_decomposed quantized onednn mkldnn mkl rngprims"
    " flex_lib".split()
)
"""Ops that every torch has; others are those of a library, or call further graphs."""

PLAIN = frozenset(
    "add sub mul truediv floordiv mod pow neg pos eq ne lt le gt ge and_ or_ getitem".split()
)
"""Functions of `operator` that may stand in a graph; they compute sizes, or take an output."""

FEW = 16
"""So many numbers of a constant may be kept: they are a scale or a shape, no weight."""
MOST_INDICES = 4096
"""So many whole numbers are: what indexes something decides what is read."""


class NotCapturable(Exception):
    """The graph cannot be written as text; one line says why."""


def graph_text(
    gm: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any],
    *,
    frozen: Sequence[int] | None = None,
) -> str:
    """What `compile_fx_inner(gm, example_inputs, **options)` is about to compile.

    To be called before it: Inductor changes `gm`. With `frozen`, it is the graph before those
    inputs become constants. Raises NotCapturable.
    """
    nodes = list(gm.graph.nodes)
    for node in nodes:
        _check(node)
    names = [node.name for node in nodes if node.op == "placeholder"]
    if len(names) != len(example_inputs):
        raise NotCapturable(f"it has {counted(len(names), 'input')}, not {len(example_inputs)}")
    symbols: dict[str, int] = {}
    loads = list(_loads(names, example_inputs, symbols))
    attributes = list(_attributes(gm, nodes))
    body = _indented(str(gm.code).strip("\n"), "    ")
    head = _head(gm, nodes, example_inputs, options, symbols, frozen)
    sizes = "".join(f"{name} = {hint}\n" for name, hint in sorted(symbols.items()))
    return "".join(
        (
            head_line(head),
            "\n",
            sizes,
            PRELUDE,
            *(f"        {line}\n" for line in attributes),
            "\n",
            body.rstrip(),
            "\n\n\ndef load_args(reader):\n",
            *(f"    {line}\n" for line in loads or ["pass"]),
            FINALE,
            MODES[bool(symbols)],
        )
    )


def flex_op(target: Any) -> str:
    """The name of an op of flex attention, which has functions; empty for any other target."""
    name = getattr(target, "__name__", "")
    known = name in FUNCTIONS and getattr(torch.ops.higher_order, name) is target
    return str(name) if known else ""


def functions_of(call: Any) -> list[str]:
    """The names of its functions in the graph, in their order."""
    module = call.graph.owning_module
    return [
        str(node.target)
        for node in call.all_input_nodes
        if node.op == "get_attr" and isinstance(getattr(module, node.target), torch.nn.Module)
    ]


_TYPE = re.compile(r"\) -> \w+:$", re.MULTILINE)
"""Of the result, as some graphs name it."""


def function_text(gm: Any) -> str:
    """A function of numbers, as Inductor lowers it: its constants, then `forward`. Raises
    NotCapturable."""
    return "\n".join([*_parts(gm), ""])


def _parts(gm: Any) -> list[str]:
    """Its constants, a line each, and `forward`. Raises NotCapturable."""
    nodes = list(gm.graph.nodes)
    for node in nodes:
        _check(node)
        if flex_op(node.target):
            raise NotCapturable("it has a function within a function")
    code = _TYPE.sub("):", str(gm.code).strip(), count=1)
    return [*_attributes(gm, nodes), code]


def around_freezing(note: Callable[[Any, Sequence[Any]], None], forget: Callable[[], None]) -> None:
    """Call `note` with each graph that is about to be frozen and its inputs, and `forget` after it
    was. What is compiled in between has constants that no text says: weights in oneDNN's order."""
    stock = _compile_fx.fw_compiler_freezing

    @functools.wraps(stock)
    def freezing(gm: Any, example_inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        note(gm, example_inputs)
        try:
            return stock(gm, example_inputs, *args, **kwargs)
        finally:
            forget()

    _compile_fx.fw_compiler_freezing = freezing


def frozen_inputs() -> list[int]:
    """The inputs that become constants, as `torch._inductor.freezing` finds them in its
    `replace_params_with_constants`."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if context is None or metadata is None:
        return []
    kept = {info.base_idx for info in metadata.output_info if info.base_idx is not None}
    for at, info in enumerate(metadata.input_info):
        if info.mutation_type != MutationType.NOT_MUTATED:
            kept.add(at)
    return [at for at in range(len(context.params_flat_unwrap_subclasses or ())) if at not in kept]


def _check(node: Any) -> None:
    """Raises NotCapturable for what no text, or no text of torch alone, says."""
    if node.op in ("placeholder", "output"):
        return
    if node.op == "get_attr":
        if "." in str(node.target):
            raise NotCapturable(f"a part of another module is used: {node.target}")
        return
    target = node.target
    if node.op == "call_function" and flex_op(target):
        return
    if node.op == "call_function" and isinstance(target, OpOverload):
        if target.namespace in NAMESPACES:
            return
        raise NotCapturable(f"{target} is no op of torch itself")
    name = getattr(target, "__name__", str(target))
    if node.op != "call_function" or name not in PLAIN or getattr(operator, name) is not target:
        raise NotCapturable(f"a call of {name} is not kept as text")


def _head(
    gm: Any,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    options: Mapping[str, Any],
    symbols: Mapping[str, int],
    frozen: Sequence[int] | None,
) -> Head:
    backward = bool(options.get("is_backward"))
    visible = nodes[-1].meta.get("user_visible_output_idxs")
    cudagraphs = options.get("cudagraphs")
    wanted = config.triton.cudagraphs if cudagraphs is None else cudagraphs
    return Head(
        torch=str(torch.__version__),
        kind=_kind(backward, bool(options.get("is_inference"))),
        static=tuple(int(at) for at in options.get("static_input_idxs") or ()),
        donated=tuple(_donated()) if backward else (),
        visible=None if visible is None else tuple(map(int, visible)),
        cudagraphs=bool(wanted),
        cpp_wrapper=bool(options.get("cpp_wrapper")),
        layout=options.get("layout_opt"),
        freezing=frozen is not None,
        frozen=tuple(frozen or ()),
        config=program_settings(),
        precision=precision(),
        threads=threads(),
        symbols=dict(sorted(symbols.items())),
        origins=dict(_origins(nodes)),
        bounds=dict(bounds(nodes, inputs)),
        ends=dict(ends(nodes)),
    )


def _kind(backward: bool, inference: bool) -> GraphKind:
    if backward:
        return "backward"
    return "inference" if inference else "forward"


def _donated() -> Sequence[int]:
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return getattr(metadata, "bw_donated_idxs", None) or ()


def _origins(nodes: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        origin = node.meta.get("original_aten")
        if isinstance(origin, OpOverload) and origin.namespace in NAMESPACES:
            yield node.name, str(origin)


# Inputs: how PyTorch's reader is told to make them


def _loads(names: Sequence[str], inputs: Sequence[Any], symbols: dict[str, int]) -> Iterator[str]:
    storages: dict[int, str] = {}
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.SymInt):
            hint = _hint(value)
            yield f"reader.symint({hint}, expr={_expression(value, symbols)!r})  # {name}"
        elif type(value) is int:
            yield f"reader.symint({value})  # {name}"
        elif isinstance(value, torch.Tensor):
            yield from _tensor_loads(name, value, storages, symbols)
        else:
            raise NotCapturable(f"its input {name} is a {type(value).__name__}")


def _tensor_loads(
    name: str, value: Any, storages: dict[int, str], symbols: dict[str, int]
) -> Iterator[str]:
    if value.layout is not torch.strided or value.is_quantized:
        raise NotCapturable(f"its input {name} has the layout {value.layout}")
    if value.device.type not in ("cpu", "cuda"):
        raise NotCapturable(f"its input {name} lies on {value.device}")
    untyped = value.untyped_storage()
    storage = storages.get(untyped._cdata)
    if storage is None:
        storage = storages[untyped._cdata] = f"buf{len(storages)}"
        size = untyped.nbytes()
        device = "" if value.device.type == "cpu" else f", device={_device(value.device)}"
        hint = "" if value.dtype == torch.float32 else f", dtype_hint={value.dtype}"
        text = _expression(size, symbols)
        yield f"{storage} = reader.storage(None, {text}{device}{hint})"
    sizes = [_expression(size, symbols) for size in value.shape]
    strides = [_expression(stride, symbols) for stride in value.stride()]
    dtype = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
    offset = _expression(value.storage_offset(), symbols)
    shift = "" if offset == "0" else f", storage_offset={offset}"
    yield (
        f"reader.tensor({storage}, {_tuple(sizes)}, {_tuple(strides)}{dtype}{shift}, is_leaf=True)"
        f"  # {name}"
    )


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _device(device: torch.device) -> str:
    index = "" if device.index is None else f", index={device.index}"
    return f"device(type={device.type!r}{index})"


_SIMPLE = re.compile(r"[a-zA-Z0-9_+*() /-]+")


def _expression(size: Any, symbols: dict[str, int]) -> str:
    """A size as Python; its symbols are added. Raises NotCapturable for what is more than sums and
    products."""
    if not isinstance(size, torch.SymInt):
        return str(int(size))
    expression = size.node.expr
    text = str(expression)
    if not _SIMPLE.fullmatch(text) or re.search(r"[a-zA-Z_]\(|(?<!/)/(?!/)", text):
        raise NotCapturable(f"a size is {text}")
    environment = size.node.shape_env
    for symbol in expression.free_symbols:
        known = getattr(environment, "backed_var_to_val", None)
        known = getattr(environment, "var_to_val", {}) if known is None else known
        if symbol not in known:
            raise NotCapturable(f"the size {symbol} depends on data")
        symbols[str(symbol)] = int(known[symbol])
    return text


def _hint(value: Any) -> int:
    hint = value.node.hint
    if hint is None:
        raise NotCapturable(f"the size {value} depends on data")
    return int(hint)


# Constants of the graph


def _attributes(gm: Any, nodes: Sequence[Any]) -> Iterator[str]:
    used = dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr")
    for name in used:
        value = getattr(gm, name)
        if isinstance(value, torch.fx.GraphModule) and name.isidentifier():
            yield from _function(name, value)
            continue
        if not isinstance(value, torch.Tensor):
            raise NotCapturable(f"its constant {name} is a {type(value).__name__}")
        yield f"self.register_buffer({name!r}, {_constant(name, value)})"


def _function(name: str, module: torch.fx.GraphModule) -> Iterator[str]:
    """As a class of its own."""
    *constants, code = _parts(module)
    yield f"class {name}(torch.nn.Module):"
    yield "    def __init__(self) -> None:"
    for line in ("super().__init__()", *constants):
        yield f"        {line}"
    yield from _indented(code, "    ").splitlines()
    yield f"self.{name} = {name}()"


def _constant(name: str, value: Any) -> str:
    known = type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_meta
    if not known or value.layout is not torch.strided or value.is_quantized or value.is_complex():
        raise NotCapturable(f"its constant {name} has a layout or type that is not kept as text")
    if not value.is_contiguous():
        raise NotCapturable(f"its constant {name} is not contiguous")
    shape, count = list(value.shape), value.numel()
    where = "" if value.device.type == "cpu" else f", device={str(value.device)!r}"
    if count <= FEW or (not value.is_floating_point() and count <= MOST_INDICES):
        plain = value.detach().flatten()
        plain = plain.float() if value.is_floating_point() else plain
        numbers = ", ".join(map(repr, plain.tolist()))
        return f"torch.tensor([{numbers}]{where}).to({value.dtype}).reshape({shape})"
    made = "randn" if value.is_floating_point() else "zeros"
    return f"torch.{made}({shape}{where}).to({value.dtype})"


def _indented(text: str, by: str) -> str:
    return "\n".join(f"{by}{line}" if line.strip() else "" for line in text.splitlines())


_THROUGH = re.compile(
    r"aten\.(view|_unsafe_view|reshape|unsqueeze|squeeze|expand|permute|slice|select|clone|alias"
    r"|t|transpose|repeat|_to_copy)\.|prims\.convert_element_type\."
)
"""What hands the numbers of its first input on."""


def bounds(nodes: Sequence[Any], inputs: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Of inputs that are indices and nothing else, the size of what they index."""
    placeholders = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype in (torch.int32, torch.int64):
            bound = _bound(node, 0)
            if bound is not None and bound > 1:
                yield node.name, bound
        elif any("offsets_to_ind" in str(user.target) for user in node.users):
            yield node.name, 1  # places in a window, as a pooling has kept them


def ends(nodes: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Of inputs that say where the groups of a grouped product end, how many rows these have."""
    for node in nodes:
        if "_grouped_mm." not in str(node.target):
            continue
        a, b = (given.meta["val"].shape for given in node.args[:2])
        for given in node.all_input_nodes:
            kind = getattr(given.meta["val"], "dtype", None)
            if given.op == "placeholder" and kind == torch.int32:
                yield given.name, int(grouped_rows(a, b))


def grouped_rows(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """What groups of a grouped product are cut from, by the sizes of its factors: the rows of `a`,
    the columns of `b`, or what both are summed up over."""
    if len(a) == 3:
        return b[-1]
    return a[-1] if len(b) == 2 else a[0]


def _bound(node: Any, depth: int) -> int | None:
    """None where it is used for something else too."""
    bounds: list[int] = []
    for user in node.users:
        bound = _bound_by(user, node, depth)
        if bound is None:
            return None
        bounds.append(bound)
    return min(bounds, default=None)


def _bound_by(user: Any, node: Any, depth: int) -> int | None:
    name = str(user.target)
    if name == "aten.embedding.default" and user.args[1] is node:
        return _size(user.args[0], 0)
    if name.startswith(("aten.index.", "aten._unsafe_index.")) and user.args[0] is not node:
        places = [at for at, index in enumerate(user.args[1]) if index is node]
        sizes = [_size(user.args[0], at) for at in places]
        return None if None in sizes else min(size for size in sizes if size is not None)
    if name in ("aten.gather.default", "aten.index_select.default") and user.args[2] is node:
        return _size(user.args[0], user.args[1])
    if depth < 8 and _THROUGH.match(name) and user.args[0] is node:
        return _bound(user, depth + 1)
    if user.op == "output":  # saved for the backward graph
        return 1 << 62
    return None


def _size(node: Any, dim: int) -> int | None:
    value = node.meta.get("val")
    size = value.shape[dim] if isinstance(value, torch.Tensor) and value.dim() else None
    return size if type(size) is int else None


Scalar = bool | int | float | str | None
"""What one of the options may be, for us."""

_ALWAYS = (
    "max_autotune",
    "max_autotune_pointwise",
    "max_autotune_gemm",
    "max_autotune_gemm_backends",
    "max_autotune_conv_backends",
    "max_autotune_conv_bwd_weight_backends",
    "max_autotune_conv_bwd_input_backends",
    "max_autotune_gemm_search_space",
    "max_autotune_flex_search_space",
    "autotune_fallback_to_aten",
    "coordinate_descent_tuning",
    "freezing",
    "layout_optimization",
    "epilogue_fusion",
    "prologue_fusion",
    "benchmark_fusion",
    "benchmark_epilogue_fusion",
    "benchmark_kernel",
    "combo_kernels",
    "deterministic",
    "emulate_precision_casts",
    "force_same_precision",
    "fallback_random",
    "graph_partition",
    "shape_padding",
    "split_reductions",
    "cpp_wrapper",
    "cpp.threads",
    "cpp.simdlen",
    "cpp.enable_kernel_profile",
    "cpp.min_chunk_size",
    "triton.cudagraphs",
    "triton.multi_kernel",
    "triton.unique_kernel_names",
)
"""Many of these have a default that comes from the environment, which is another one elsewhere."""

_TEXTS = {name for name in _ALWAYS if name.startswith("max_autotune_")} | {
    "cpu_backend",
    "cuda_backend",
    "triton.descriptive_names",
}
"""Options whose text cannot lead to a file or a program."""
_TEXT = re.compile(r"[A-Za-z0-9_,]{0,200}")

_ELSEWHERE = re.compile(
    r"_|trace\.|aot_inductor|test_configs|cuda\.|cutlass\.|rocm\.|halide|bundle|profile|debug"
    r"|freezing_discard|verbose|compile_threads|worker|quiesce|save_args|force_disable_caches|autotune_in_subproc"
    r"|autotune_multi|generate_intermediate|fx_graph|autotune_(local|remote)|sleep_sec|.*_TESTING"
    r"|.*(cache|dir|path|upload|log|dump)|.*_timeout|cpp\.(cxx|inject)|triton\.inject"
    r"|profiler|unsafe|custom|fbcode|inplace_padding_at|nan_asserts|size_asserts|scalar_asserts"
    r"|alignment_asserts|triton\.debug"
)
"""Options that are about files, processes or looking on, and not about what is compiled."""


def program_settings() -> dict[str, Scalar]:
    """The options that decide how a graph is compiled, where they matter or are no default."""
    chosen: dict[str, Scalar] = {}
    entries = getattr(config, "_config", {})
    for name, value in config.get_config_copy().items():
        default = getattr(entries.get(name), "default", value)
        if _usable(name, value) and (name in _ALWAYS or value != default):
            chosen[name] = value
    return dict(sorted(chosen.items()))


def usable_settings(given: Mapping[str, object]) -> dict[str, Scalar]:
    """Of options that stand in a file those that this torch has, and that do no harm."""
    known = config.get_config_copy()
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name in known and _usable(name, value) and _usable(name, known[name]):
            chosen[name] = value
    return chosen


def _usable(name: str, value: object) -> bool:
    if name not in _ALWAYS and name not in _TEXTS and _ELSEWHERE.match(name):
        return False
    if isinstance(value, str):
        return name in _TEXTS and _TEXT.fullmatch(value) is not None
    return value is None or isinstance(value, (bool, int, float))

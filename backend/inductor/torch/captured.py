"""The text of a graph that Inductor is about to compile, in the format of PyTorch's repro writer;
which of its inputs must stay below a size, because they are indices, or have a fixed sum; and
Inductor's options as set by the program.

Checked with torch 2.8 to 2.15 (`torch/_dynamo/repro/after_aot.py`, `_dynamo/debug_utils.py`,
`_inductor/compile_fx.py`, `_inductor/config.py`, `torch/utils/_config_module.py`). That writer is
not called itself: it stores small weights, queries the machine, and writes all Triton kernels and
options of the process.
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
"""Ops that every torch has; others belong to a library, or call further graphs."""

PLAIN = frozenset(
    "add sub mul truediv floordiv mod pow neg pos eq ne lt le gt ge and_ or_ getitem".split()
)
"""Permitted functions of `operator` in a graph; they compute sizes, or select an output."""

FEW = 16
"""The maximum numbers of a stored constant: it is a scale or a shape, not a weight."""
MOST_INDICES = 4096
"""The maximum integers of a stored constant: indices determine what is read."""


class NotCapturable(Exception):
    """The graph cannot be written as text; the message is one line."""


def graph_text(
    gm: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any],
    *,
    frozen: Sequence[int] | None = None,
) -> str:
    """Return the text of what `compile_fx_inner(gm, example_inputs, **options)` is about to
    compile.

    Call it before, since Inductor changes `gm`. With `frozen`, the graph is from before those
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
    body = _indented(str(gm.code).strip("\n"))
    head = _head(nodes, example_inputs, options, symbols, frozen)
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
    """Return the name of an op of flex attention, which has functions; else empty."""
    name = getattr(target, "__name__", "")
    is_flex = name in FUNCTIONS and getattr(torch.ops.higher_order, name) is target
    return str(name) if is_flex else ""


def functions_of(call: Any) -> list[str]:
    """Return the names of a call's functions in the graph, in their order."""
    module = call.graph.owning_module
    return [
        str(node.target)
        for node in call.all_input_nodes
        if node.op == "get_attr" and isinstance(getattr(module, node.target), torch.nn.Module)
    ]


_TYPE = re.compile(r"\) -> \w+:$", re.MULTILINE)
"""The type of the result, as some graphs print it."""


def function_text(gm: Any) -> str:
    """Return the text of a function of numbers, as Inductor lowers it: its constants, then
    `forward`. Raises NotCapturable."""
    return "\n".join([*_parts(gm), ""])


def _parts(gm: Any) -> list[str]:
    """Return its constants, one line each, and `forward`. Raises NotCapturable."""
    nodes = list(gm.graph.nodes)
    for node in nodes:
        _check(node)
        if flex_op(node.target):
            raise NotCapturable("it has a function within a function")
    code = _TYPE.sub("):", str(gm.code).strip(), count=1)
    return [*_attributes(gm, nodes), code]


def around_freezing(note: Callable[[Any, Sequence[Any]], None], forget: Callable[[], None]) -> None:
    """Call `note` with each graph that is about to be frozen and its inputs, and `forget`
    afterwards. Graphs compiled in between have constants that no text has: weights in oneDNN's
    order."""
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
    """Return the inputs that become constants, as `replace_params_with_constants` of
    `torch._inductor.freezing` determines them."""
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
    """Raise NotCapturable for nodes that cannot be written as text, or need more than torch."""
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
        raise NotCapturable(f"{target} is not an op of torch itself")
    name = getattr(target, "__name__", str(target))
    if node.op != "call_function" or name not in PLAIN or getattr(operator, name) is not target:
        raise NotCapturable(f"a call of {name} is not kept as text")


def _head(
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


# Inputs, as calls of PyTorch's reader


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
    """Return a size as Python, adding its symbols. Raises NotCapturable beyond sums, products."""
    if not isinstance(size, torch.SymInt):
        return str(int(size))
    expression = size.node.expr
    text = str(expression)
    if not _SIMPLE.fullmatch(text) or re.search(r"[a-zA-Z_]\(|(?<!/)/(?!/)", text):
        raise NotCapturable(f"a size is {text}")
    environment = size.node.shape_env
    for symbol in expression.free_symbols:
        values = getattr(environment, "backed_var_to_val", None)
        values = getattr(environment, "var_to_val", {}) if values is None else values
        if symbol not in values:
            raise NotCapturable(f"the size {symbol} depends on data")
        symbols[str(symbol)] = int(values[symbol])
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
    """Return a function as a separate class."""
    *constants, code = _parts(module)
    yield f"class {name}(torch.nn.Module):"
    yield "    def __init__(self) -> None:"
    for line in ("super().__init__()", *constants):
        yield f"        {line}"
    yield from _indented(code).splitlines()
    yield f"self.{name} = {name}()"


def _constant(name: str, value: Any) -> str:
    is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_meta
    if (
        not is_plain
        or value.layout is not torch.strided
        or value.is_quantized
        or value.is_complex()
    ):
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
    function = "randn" if value.is_floating_point() else "zeros"
    return f"torch.{function}({shape}{where}).to({value.dtype})"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.splitlines())


_THROUGH = re.compile(
    r"aten\.(view|_unsafe_view|reshape|unsqueeze|squeeze|expand|permute|slice|select|clone|alias"
    r"|t|transpose|repeat|_to_copy)\.|prims\.convert_element_type\."
)
"""Ops that pass the numbers of their first input on."""


def bounds(nodes: Sequence[Any], inputs: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Yield, for inputs that are only used as indices, the size of the indexed dimension."""
    placeholders = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype in (torch.int32, torch.int64):
            bound = _bound(node, 0)
            if bound is not None and bound > 1:
                yield node.name, bound
        elif any("offsets_to_ind" in str(user.target) for user in node.users):
            yield node.name, 1  # positions in a window, as stored by a pooling


def ends(nodes: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Yield, for inputs with the ends of groups of a grouped product, the total number of rows."""
    for node in nodes:
        if "_grouped_mm." not in str(node.target):
            continue
        a, b = (given.meta["val"].shape for given in node.args[:2])
        for given in node.all_input_nodes:
            kind = getattr(given.meta["val"], "dtype", None)
            if given.op == "placeholder" and kind == torch.int32:
                rows = grouped_rows(a, b)  # as a number, a symbol would be fixed for the program
                yield given.name, _hint(rows) if isinstance(rows, torch.SymInt) else rows


def grouped_rows(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Return the size that the groups of a grouped product divide, from the sizes of its factors:
    the rows of `a`, the columns of `b`, or the dimension they are summed over."""
    if len(a) == 3:
        return b[-1]
    return a[-1] if len(b) == 2 else a[0]


def _bound(node: Any, depth: int) -> int | None:
    """Return the bound; None if the node has other uses."""
    bounds: list[int] = []
    for user in node.users:
        bound = _bound_by(user, node, depth)
        if bound is None:
            return None
        bounds.append(bound)
    return min(bounds, default=None)


def _bound_by(user: Any, node: Any, depth: int) -> int | None:
    name = str(user.target)
    tables = "aten.embedding.default", "aten._embedding_bag"
    if name.startswith(tables) and user.args[1] is node:
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
"""The supported types of options."""

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
"""Options whose default often comes from the environment, which differs elsewhere."""

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
"""Options about files, processes or diagnostics, not about the compiled code."""


def program_settings() -> dict[str, Scalar]:
    """Return the options that determine how a graph is compiled, if relevant or not the default."""
    chosen: dict[str, Scalar] = {}
    entries = getattr(config, "_config", {})
    for name, value in config.get_config_copy().items():
        default = getattr(entries.get(name), "default", value)
        if _usable(name, value) and (name in _ALWAYS or value != default):
            chosen[name] = value
    return dict(sorted(chosen.items()))


def usable_settings(given: Mapping[str, object]) -> dict[str, Scalar]:
    """Return the options in a file that this torch has, and that are harmless."""
    current = config.get_config_copy()
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name in current and _usable(name, value) and _usable(name, current[name]):
            chosen[name] = value
    return chosen


def option_value(name: str, text: str) -> Scalar:
    """Return the value of `text` in the type of this torch's option; `default` is torch's own.
    Raises ValueError for a missing option or value, or one that does not affect compilation."""
    options = config.get_config_copy()
    if name not in options:
        raise ValueError(f"torch {torch.__version__} has no Inductor option {name}")
    default = options[name]
    if text == "default":
        default = getattr(getattr(config, "_config", {}).get(name), "default", default)
    value: Scalar = default if text == "default" else text
    if text in ("True", "False"):
        value = text == "True"
    elif text.lstrip("-").isdecimal() and not isinstance(default, str):
        value = int(text)
    fits = default is None or isinstance(value, str) == isinstance(default, str)
    if isinstance(default, bool) and not isinstance(value, bool):
        fits = False
    if _usable(name, default) and not fits:
        raise ValueError(f"{name} takes values like {default}, not {text}")
    if not (_usable(name, value) and _usable(name, default)):
        raise ValueError(f"{name}={text} cannot be tried: it does not decide what is compiled")
    return value


def set_option(name: str, text: str) -> None:
    """Set an option for all threads, whatever the program sets: torch 2.13 keeps what a program
    sets separately for each thread. Raises ValueError as `option_value` does."""
    value = option_value(name, text)
    setattr(config, name, value)  # torch also forgets what it derived from the old value
    config._config[name].env_value_force = value  # as an environment variable of torch's does


def _usable(name: str, value: object) -> bool:
    if name not in _ALWAYS and name not in _TEXTS and _ELSEWHERE.match(name):
        return False
    if isinstance(value, str):
        return name in _TEXTS and _TEXT.fullmatch(value) is not None
    return value is None or isinstance(value, (bool, int, float))

"""Tensors of the graph as operands of kernels, and as text of the generated code; and ATen as the
fallback for a winning kernel of ours that cannot be called, in Python or in C++.

C++ calls the stable functions of torch's C ABI (`aoti_torch_...`). Those without a form that writes
into a tensor return a new one, which is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

from backend.errors import ExpressionError, UnsupportedProblemError
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import pointwise
from backend.inductor.torch.graph import Node
from backend.templates.operand import ACC, VECTOR_BYTES, DType, Operand
from backend.templates.problem import Activation

DTYPES: dict[torch.dtype, DType] = {
    getattr(torch, name): name for name in get_args(DType) if name in ACC or name == "int32"
}
"""The types of factors, biases and products."""
STORED: dict[torch.dtype, DType] = {getattr(torch, name): name for name in get_args(DType)}
"""All types that a kernel may read and write."""


def operand_of(name: str, node: Node, dtypes: Mapping[torch.dtype, DType] = DTYPES) -> Operand:
    """Return a tensor as an operand. Raises UnsupportedProblemError for other dtypes."""
    layout = node.get_layout()
    dtype = dtypes.get(node.get_dtype())
    if dtype is None:
        raise UnsupportedProblemError(f"{name} is {node.get_dtype()}")
    return Operand(
        name=name,
        dtype=dtype,
        sizes=tuple(_plain(size) for size in node.get_size()),
        strides=tuple(_plain(stride) for stride in node.get_stride()),
        offset=_plain(layout.offset),
        base_bytes=VECTOR_BYTES if _aligned(node) else node.get_dtype().itemsize,
    )


def stored_dtype(name: str) -> str:
    """Return the dtype of a buffer. Raises ExpressionError if kernels neither read nor write it."""
    dtype = pointwise.buffer_dtype(name)
    if dtype not in STORED.values():
        raise ExpressionError(f"{name} is of {dtype}")
    return dtype


def _plain(expr: Any) -> Any:
    return int(expr) if getattr(expr, "is_Integer", False) else expr


def _aligned(node: Node) -> bool:
    """Return whether the storage is aligned to the widest access, as outputs of choices are."""
    return not torch_graph.is_registered(node) or torch_graph.is_ours_to_align(node)


def address(node: Node) -> str:
    """Return the address of a tensor's first element, in Python or C++; views have offsets."""
    base = f"{torch_graph.real_name(node.get_name())}.data_ptr()"
    offset = node.get_layout().offset if torch_graph.is_view(node) else 0
    if offset == 0:
        return base
    if torch_graph.writes_cpp():
        base = f"static_cast<char*>({base})"
    return f"{base} + {node.get_dtype().itemsize} * ({torch_graph.size_text(offset)})"


def tensor_text(node: Node) -> str:
    """Return a tensor as Python text; a view is derived from its buffer."""
    text, name = str(node.codegen_reference()), node.get_name()
    return text.replace(name, torch_graph.real_name(name), 1)


def scale_of(operands: Mapping[str, Operand], name: str) -> Operand:
    """Return the scale: one number, or one for each row of the left factor and column of the right
    one. Raises UnsupportedProblemError for block scales."""
    scale, factor, along = operands[name], operands[name[-1]], -2 if name == "scale_a" else -1
    is_single = all(size == 1 for size in scale.sizes)
    lines = [1, 1]
    lines[along] = factor.sizes[along]
    if scale.dtype != "float32" or not (is_single or list(scale.sizes) == lines):
        raise UnsupportedProblemError(f"{name} is {scale.dtype} of {scale.sizes}")
    return scale if not is_single else replace(scale, sizes=(), strides=())


_FUNCTIONAL: dict[Activation, str] = {
    "none": "{}",
    "relu": "torch.nn.functional.relu({})",
    "gelu": "torch.nn.functional.gelu({})",
    "gelu_tanh": "torch.nn.functional.gelu({}, approximate='tanh')",
    "silu": "torch.nn.functional.silu({})",
}

ONEDNN: Mapping[tuple[str, str], Activation] = {
    ("none", ""): "none",
    ("relu", ""): "relu",
    ("swish", ""): "silu",
    ("gelu", "none"): "gelu",
    ("gelu", "tanh"): "gelu_tanh",
}
"""Activations by oneDNN's `attr` and `algorithm`."""


def write_aten(buffer: Any) -> None:
    """Write the product of `buffer` into the wrapper without a kernel of ours."""
    template, wrapper = buffer.template, torch_graph.graph().wrapper_code
    if not torch_graph.writes_cpp():
        text = template.aten_text([tensor_text(node) for node in buffer.inputs])
        text = _FUNCTIONAL[template.activation].format(text)
        wrapper.writeline(f"{tensor_text(buffer)}.copy_({text})")
        return
    nodes = list(buffer.inputs)
    if template.activation != "none":  # a linear layer, whose weight is (N, K) there
        nodes[1] = torch_graph.transposed(nodes[1])
    inputs = [str(node.codegen_reference()) for node in nodes]
    out = str(buffer.codegen_reference())
    if template.activation == "none":
        lines = template.aten_cpp(out, inputs, buffer.get_device().type)
    else:
        wrapper.include_extra_header("torch/csrc/inductor/aoti_torch/c/shim_cpu.h")
        lines = linear_cpp(out, template.activation, *inputs)
    for line in ("{", *lines, "}"):
        wrapper.writeline(line)


def product_text(template: Any, operands: Mapping[str, str]) -> str:
    """Return Python of a product of such operands, with public functions of torch only."""
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    if "c" in operands:
        return f"torch.add(torch.mm({a}, {b}), torch.mm({operands['c']}, {operands['d']}))"
    if "scale_a" in operands:
        scales = f"{operands['scale_a']}, {operands['scale_b']}"
        dtype = template.layout.dtype
        options = f"bias={bias}, out_dtype={dtype}, use_fast_accum={template.fast_sums}"
        return f"torch._scaled_mm({a}, {b}, {scales}, {options})"
    if bias:  # not read where beta is 0
        function = "torch.baddbmm" if len(template.layout.size) == 3 else "torch.addmm"
        scales = f"beta={template.beta!r}, alpha={template.alpha!r}"
        return f"{function}({bias}, {a}, {b}, {scales})"
    function = "torch._int_mm" if template.problem().acc == "int32" else "torch.matmul"
    return f"{function}({a}, {b})"


def product_cpp(template: Any, out: str, operands: Mapping[str, str], device: str) -> list[str]:
    """Return C++ of the same, into `out`."""
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    shims = f"aoti_torch_{device}_"
    if "c" in operands:
        return [checked("aoti_torch__mm_plus_mm_out", out, a, b, operands["c"], operands["d"])]
    if "scale_a" in operands:
        dtype = str(template.layout.dtype).removeprefix("torch.")
        scales, fast = (operands["scale_a"], operands["scale_b"]), int(template.fast_sums)
        return [
            *optional("bias", bias),
            f"int32_t dtype = aoti_torch_dtype_{dtype}();",
            checked(
                f"{shims}_scaled_mm_out", out, a, b, *scales, "bias", "nullptr", "&dtype", fast
            ),
        ]
    names = ("bmm", "baddbmm") if len(template.layout.size) == 3 else ("mm", "addmm")
    if template.problem().acc == "int32":
        names = ("_int_mm", "")
    if not bias:
        return [checked(f"{shims}{names[0]}_out", out, a, b)]
    return [checked(f"{shims}{names[1]}_out", out, bias, a, b, template.beta, template.alpha)]


def linear_cpp(
    out: str, activation: Activation, x: str, weight: str, bias: str | None = None
) -> list[str]:
    """Return C++ of a linear layer on the CPU with oneDNN's activation."""
    attr, algorithm = next(names for names, of in ONEDNN.items() if of == activation)
    return [
        *optional("bias", bias),
        f'const char* algorithm = "{algorithm}";',
        *copied(
            out,
            "aoti_torch_cpu__linear_pointwise",
            x,
            weight,
            "bias",
            f'"{attr}"',
            "nullptr",
            0,
            "&algorithm",
        ),
    ]


def checked(function: str, *arguments: object) -> str:
    """Return C++ of a call whose error is raised."""
    text = ", ".join(map(str, arguments))
    return f"AOTI_TORCH_ERROR_CODE_CHECK({function}({text}));"


def copied(out: str, function: str, *arguments: object) -> list[str]:
    """Return C++ of a call that returns a new tensor, which is copied into `out`."""
    return [
        "AtenTensorHandle made;",
        checked(function, *arguments, "&made"),
        "RAIIAtenTensorHandle held(made);",
        checked("aoti_torch_copy_", out, "held", 0),
    ]


def optional(name: str, tensor: str | None) -> list[str]:
    """Return C++ of `name`, the pointer to a tensor that may be missing."""
    if not tensor:
        return [f"AtenTensorHandle* {name} = nullptr;"]
    return [
        f"auto&& {name}_tensor = {tensor};",
        f"AtenTensorHandle {name}_handle = {name}_tensor;",
        f"AtenTensorHandle* {name} = &{name}_handle;",
    ]


def cpp_array(name: str, values: Sequence[int]) -> str:
    """Return C++ of an array with at least one element."""
    return f"const int64_t {name}[] = {{{', '.join(map(str, values)) or '0'}}};"

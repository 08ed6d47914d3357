"""ATen in place of a kernel of ours, which has won and cannot be called after all: what the
generated code says then, in Python or in C++.

C++ calls the stable functions of torch's C ABI (`aoti_torch_...`). Those without a form that writes
into a tensor give a new one, which is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.inductor.hip.operands import tensor_text
from backend.inductor.torch import graph as torch_graph
from backend.templates.problem import Activation

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
    """Write into the wrapper what computes the product of `buffer` without a kernel of ours."""
    template, wrapper = buffer.template, torch_graph.graph().wrapper_code
    if not torch_graph.writes_cpp():
        text = template.aten_text([tensor_text(node) for node in buffer.inputs])
        text = _FUNCTIONAL[template.activation].format(text)
        wrapper.writeline(f"{tensor_text(buffer)}.copy_({text})")
        return
    nodes = list(buffer.inputs)
    if template.activation != "none":  # a linear layer's: its weight is (N, K) there
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


def product_text(template: Any, given: Mapping[str, str]) -> str:
    """Python of a product of such operands, by public functions of torch alone."""
    a, b, bias = given["a"], given["b"], given.get("bias")
    if "c" in given:
        return f"torch.add(torch.mm({a}, {b}), torch.mm({given['c']}, {given['d']}))"
    if "scale_a" in given:
        scales = f"{given['scale_a']}, {given['scale_b']}"
        dtype = template.layout.dtype
        options = f"bias={bias}, out_dtype={dtype}, use_fast_accum={template.fast_sums}"
        return f"torch._scaled_mm({a}, {b}, {scales}, {options})"
    function = "torch._int_mm" if template.problem().acc == "int32" else "torch.matmul"
    text = f"{function}({a}, {b})"
    if template.alpha != 1:
        text = f"torch.mul({text}, {template.alpha!r})"
    if bias:
        text = f"torch.add({text}, {bias}, alpha={template.beta!r})"
    return text


def product_cpp(template: Any, out: str, given: Mapping[str, str], device: str) -> list[str]:
    """C++ of the same, into `out`."""
    a, b, bias = given["a"], given["b"], given.get("bias")
    shims = f"aoti_torch_{device}_"
    if "c" in given:
        return [checked("aoti_torch__mm_plus_mm_out", out, a, b, given["c"], given["d"])]
    if "scale_a" in given:
        dtype = str(template.layout.dtype).removeprefix("torch.")
        scales, fast = (given["scale_a"], given["scale_b"]), int(template.fast_sums)
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
    """C++ of a linear layer on the CPU and what oneDNN does behind it."""
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
    """C++ of a call whose error is raised."""
    text = ", ".join(map(str, arguments))
    return f"AOTI_TORCH_ERROR_CODE_CHECK({function}({text}));"


def copied(out: str, function: str, *arguments: object) -> list[str]:
    """C++ of a call that gives a new tensor, which is copied into `out`."""
    return [
        "AtenTensorHandle made;",
        checked(function, *arguments, "&made"),
        "RAIIAtenTensorHandle held(made);",
        checked("aoti_torch_copy_", out, "held", 0),
    ]


def optional(name: str, tensor: str | None) -> list[str]:
    """C++ of `name`, the pointer to a tensor that may be missing."""
    if not tensor:
        return [f"AtenTensorHandle* {name} = nullptr;"]
    return [
        f"auto&& {name}_tensor = {tensor};",
        f"AtenTensorHandle {name}_handle = {name}_tensor;",
        f"AtenTensorHandle* {name} = &{name}_handle;",
    ]


def numbers(name: str, values: Sequence[int]) -> str:
    """C++ of an array; at least one of its elements is there."""
    return f"const int64_t {name}[] = {{{', '.join(map(str, values)) or '0'}}};"

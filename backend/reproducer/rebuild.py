"""The source of a choice again, from what a tuning is known by: op, inputs key, config, hash.

The result has the hash of the choice, or there is none: a factor or an activation that the op had
beside its inputs, or another version of the templates, is found out by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.model.origin import choice_hash, kernel_hash
from backend.records import TensorSpec
from backend.reproducer.folder import ReproducerError
from backend.store.inputs_key import parse_inputs_key
from backend.templates.config import GemmConfig, config_of
from backend.templates.errors import ConfigError, TemplateError
from backend.templates.operand import ITEM_BYTES, Operand
from backend.templates.problem import ACTIVATIONS, GemmProblem
from backend.templates.rendering import Rendered, render_gemm, render_skinny
from backend.toolchain.target import Target

_ORDER = {
    "mm": ("a", "b"),
    "bmm": ("a", "b"),
    "addmm": ("bias", "a", "b"),
    "baddbmm": ("bias", "a", "b"),
    "packed_linear": ("a", "", "b"),
    "linear_unary": ("a", "b", "bias"),
}
"""The operands among the inputs of an op; `b` of a linear layer is the weight, transposed."""


def rebuild(op: str, inputs: str, description: str, hash: str, target: Target) -> Rendered:
    """What the choice `hash` was made from. Raises ReproducerError, InputsKeyInvalid."""
    template = hash.partition("-")[0].removeprefix("rocm_")
    if op not in _ORDER or template not in ("gemm", "skinny"):
        raise ReproducerError(f"{hash[:80]} of {op[:40]} is no choice of our templates")
    operands = _operands(op, parse_inputs_key(inputs).specs)
    for problem in _problems(operands):
        try:
            rendered = _render(template, problem, description, _reorder(op, problem))
        except TemplateError as error:
            raise ReproducerError(f"the config does not fit its inputs: {error}") from error
        kernel = kernel_hash(rendered.source, rendered.name, str(target))
        if choice_hash(template, kernel, rendered.config.description) == hash:
            return rendered
    raise ReproducerError(
        f"{hash[:80]} was made for {op} with factors that its inputs do not tell, for another "
        f"target than {target}, or by another version of the templates"
    )


def _operands(op: str, specs: Sequence[TensorSpec]) -> dict[str, Operand]:
    roles = _ORDER[op]
    if op == "linear_unary" and len(specs) == 2:
        roles = roles[:2]
    if len(specs) != len(roles):
        raise ReproducerError(f"{op} has {len(roles)} inputs, its key {len(specs)}")
    found = {role: _operand(role, spec) for role, spec in zip(roles, specs, strict=True) if role}
    weight = found["b"]
    if op == "packed_linear":
        found["b"] = Operand(
            "b", weight.dtype, weight.sizes[::-1], weight.strides[::-1], weight.offset
        )
    elif op == "linear_unary":  # packed: its strides say nothing
        found["b"] = Operand("b", weight.dtype, weight.sizes[::-1], (1, weight.sizes[1]))
    return found


def _operand(name: str, spec: TensorSpec) -> Operand:
    dtype = spec.dtype.removeprefix("torch.")
    if dtype not in ITEM_BYTES:
        raise ReproducerError(f"no template has the dtype {dtype[:40]}")
    return Operand(name, dtype, spec.sizes, spec.strides, spec.offset)  # type: ignore[arg-type]


def _problems(operands: dict[str, Operand]) -> Iterator[GemmProblem]:
    """The likely ones first. What the graph knew of alignment is in the config already."""
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    sizes = (*a.sizes[:-1], b.sizes[-1])
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    out = Operand("out", a.dtype, sizes, tuple(strides))
    for activation in ACTIVATIONS:
        yield GemmProblem(a, b, out, bias, activation)


def _reorder(op: str, problem: GemmProblem) -> list[int] | None:
    """The order in which the kernel takes its inputs; that of the template for linear_unary."""
    return None if problem.bias is None or op == "linear_unary" else [2, 0, 1]


def _render(
    template: str, problem: GemmProblem, description: str, reorder: list[int] | None
) -> Rendered:
    try:
        config = config_of(template, description)
    except ConfigError as error:
        raise ReproducerError(str(error)) from error
    name = f"rocm_{template}"
    if isinstance(config, GemmConfig):
        return render_gemm(problem, config, name, input_reorder=reorder)
    return render_skinny(problem, config, name, input_reorder=reorder)

"""Which pointwise op behind a product our kernels can do in their store: relu, gelu, silu.

Inductor prints the body of a pointwise op as one assignment a line; it is read back as an
expression of x, the product, and compared with those of the activations, as Inductor decomposes
them. Whatever is not known to the letter is left to Inductor.
"""

from __future__ import annotations

import re

from backend.templates.problem import Activation

_HALF, _ROOT_HALF, _ROOT_2_PI = "0.5", "0.7071067811865476", "0.7978845608028654"
_CUBIC = f"((x + (((x * x) * x) * 0.044715)) * {_ROOT_2_PI})"
_KNOWN: dict[str, Activation] = {
    "relu(x)": "relu",
    f"((x * {_HALF}) * (erf((x * {_ROOT_HALF})) + 1))": "gelu",
    f"((x * {_HALF}) * (tanh({_CUBIC}) + 1))": "gelu_tanh",
    "(x / (exp((-x)) + 1))": "silu",
}
_ASSIGNMENT = re.compile(r"\s+(tmp\d+) = (.+)")
_RETURN = re.compile(r"\s+return (tmp\d+)")
_LOAD = re.compile(r"ops\.load\((\w+), .+\)")
_CONSTANT = re.compile(r"ops\.constant\(([\d.e-]+), torch\.\w+\)")
_CAST = re.compile(r"ops\.to_dtype\((tmp\d+), torch\.(\w+), .+\)")
_CALL = re.compile(r"ops\.(\w+)\((tmp\d+)\)")
_NEGATED = re.compile(r"-(tmp\d+)")
_INFIX = re.compile(r"(tmp\d+) ([-+*/]) (tmp\d+)")


def activation_of(body: str, buffer: str) -> Activation | None:
    """The activation that `body` applies to `buffer`, element by element; None if it is another.

    The caller has to know that what is loaded lies where the result is stored.
    """
    values: dict[str, str] = {}
    wide = True
    for line in body.splitlines():
        if match := _RETURN.fullmatch(line):
            return _KNOWN.get(values.get(match[1], ""))
        if match := _ASSIGNMENT.fullmatch(line):
            name, text = match.groups()
            # Rounding to a narrow dtype comes last; in between it would change the numbers.
            value = _expression(text, values, buffer) if wide else None
            if value is None:
                return None
            values[name] = value
            wide = not ((cast := _CAST.fullmatch(text)) and cast[2] != "float32")
    return None


def _expression(text: str, values: dict[str, str], buffer: str) -> str | None:
    if match := _LOAD.fullmatch(text):
        return "x" if match[1] == buffer else None
    if match := _CONSTANT.fullmatch(text):
        return match[1]
    if match := _CAST.fullmatch(text):
        return values.get(match[1])
    if match := _CALL.fullmatch(text):
        return f"{match[1]}({values.get(match[2])})"
    if match := _NEGATED.fullmatch(text):
        return f"(-{values.get(match[1])})"
    if match := _INFIX.fullmatch(text):
        return f"({values.get(match[1])} {match[2]} {values.get(match[3])})"
    return None

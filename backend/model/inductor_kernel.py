"""The keys of Triton kernels whose configs are chosen by timing.

A kernel of `@triton.autotune`: Triton stores its times in a folder named after a digest of the
kernel's source, its key, the configs to try, the device and Triton itself. Our inputs key consists
of the readable parts and the first characters of the digest, which separate kernels of one name:
`matmul_kernel[1024, 512, "torch.float16"]:K4WQ7XJA`.

A kernel that Inductor launches itself, because Inductor generated it (pointwise, reduction,
foreach) or the program uses `@triton.autotune`: Inductor numbers it by its position in a graph and
gives its tuning no key. Our key has the same form, `triton_poi_fused_gelu[786432,
"torch.bfloat16"]:K4WQ7XJA`: the name without its number, the elements of each loop, the types, and
a digest of the function's text (without its name), its size hints, its signature and its device.
The configs are not part of the key: `max_autotune` adds more, but the kernel is the same. The
precision is "". All of this is in the kernel's own file in the cache dir, which `parse` reads.
Checked with torch 2.11 and 2.13 (`_inductor/codegen/triton.py`, `wrapper.py`,
`triton_combo_kernel.py`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRITON = "triton"
"""The op of `@triton.autotune` kernels."""
_CACHED = re.compile(r"[A-Z2-7]{52}")
_DIGEST = 8
_DTYPE = re.compile(r"torch\.\w{1,40}")


def is_digest(name: str) -> bool:
    """Return whether a name is that of a folder in Triton's cache: base32 of a SHA-256."""
    return _CACHED.fullmatch(name) is not None


def inputs_of(kernel: str, key: Sequence[object], digest: str) -> str:
    """Return the inputs key of JSON values; without its last part if `digest` is not Triton's."""
    text = f"{kernel}{json.dumps(list(key))}"
    return f"{text}:{digest[:_DIGEST]}" if is_digest(digest) else text


def kernel_name(inputs: str) -> str:
    """Return the kernel's name."""
    return inputs.partition("[")[0]


def portable_part(inputs: str) -> str:
    """Return the part of an inputs key that is the same on other machines and in other builds."""
    return inputs[: inputs.rfind("]") + 1] or inputs


def may_belong_to(inputs: str, digest: str) -> bool:
    """Return whether this inputs key may belong to the folder of this name."""
    return is_digest(digest) and inputs.endswith(f"]:{digest[:_DIGEST]}")


def sizes_of(inputs: str) -> str:
    """Return the key's values without its types: `1024×512`."""
    return "×".join(str(part) for part in _parts(inputs) if not _is_dtype(part))


def dtypes_of(key: Sequence[object]) -> tuple[str, ...]:
    """Return the types among the values of a key, `torch.float16`."""
    return tuple(str(part) for part in key if _is_dtype(part))


def _is_dtype(part: object) -> bool:
    return isinstance(part, str) and _DTYPE.fullmatch(part) is not None


def _parts(inputs: str) -> list[object]:
    start, end = inputs.find("["), inputs.rfind("]")
    try:
        parts = json.loads(inputs[start : end + 1]) if 0 <= start < end else []
    except (ValueError, RecursionError):
        return []
    return parts if isinstance(parts, list) else []


OPS = (
    "pointwise",
    "reduction",
    "persistent_reduction",
    "split_scan",
    "template",
    "foreach",
    "user_autotune",
    "fixed",
)
"""Ops of kernels that Inductor launches: its heuristics, in lower case. `template` is a kernel
written by code other than Inductor's own loops, `user_autotune` one of the program."""
_KERNELS = frozenset((TRITON, *OPS))
PRECISION = ""
"""The precision in the keys of these kernels."""
SYSTEM = "all.best_config"
"""A pin's `system` in place of a cache file's name: it applies to all of a kernel's files."""
MAX_SOURCE = 1 << 20
"""The number of characters of a file that are examined."""

_HEURISTICS = {"cooperative_reduction": "reduction", "fixed_config": "fixed"}
_DECORATED = re.compile(r"^@triton_heuristics\.(\w{1,60})\(", re.MULTILINE)
_DEFINED = re.compile(r"^def (\w{1,500})\(", re.MULTILINE)
_HINTS = re.compile(r"\bsize_hints=\{([^{}]*)\}")
_HINT = re.compile(r"'(\w{1,40})': (\d{1,18})\b")
_SIGNATURE = re.compile(r"'signature': \{([^{}]*)\}")
_ARGUMENT = re.compile(r"'(\w{1,400})': '([^']{1,200})'")
_DEVICE = re.compile(r"\bDeviceProperties\(([^()]*)\)")
_PROPERTY = re.compile(r"\b(type|multi_processor_count|cc)='?([\w.:+-]{1,60})'?")
_NUMBER = re.compile(r"_\d+\Z")
_DTYPES = {
    "i1": "bool",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5": "float8_e5m2",
    "fp8e5b16": "float8_e5m2fnuz",
}
_SHORT = re.compile(r"\A(fp|bf|i|u)(\d{1,2})\Z")
_LONG = {"fp": "float", "bf": "bfloat", "i": "int", "u": "uint"}


@dataclass(frozen=True, slots=True)
class InductorKernel:
    """A kernel as Inductor launches it: `name` has its number in the graph, `op` is in OPS.

    `signature` has Triton's types of the arguments, without constants. `device` is
    `hip:gfx942:304`: kind, arch, compute units. `inputs` is our key.
    """

    name: str
    op: str
    signature: tuple[str, ...]
    device: str
    inputs: str

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of each tensor argument: `torch.bfloat16`."""
        return tuple(_dtype(kind) for kind in self.signature if kind.startswith("*"))

    @property
    def device_type(self) -> str:
        """torch's name of the device type; a HIP device is also `cuda`."""
        return self.device.partition(":")[0].replace("hip", "cuda")


def is_kernel(op: str) -> bool:
    """Return whether the op is a Triton kernel with tuned configs, not a matrix product."""
    return op in _KERNELS


def is_inductors(op: str) -> bool:
    """Return whether Inductor launches kernels of this op itself."""
    return op in OPS


def parse(text: str) -> InductorKernel | None:
    """Return the kernel of a file that Inductor wrote, or None for other text."""
    text = text[:MAX_SOURCE]
    decorated = _DECORATED.search(text)
    defined = _DEFINED.search(text, decorated.end()) if decorated else None
    if decorated is None or defined is None:
        return None
    head = text[decorated.end() : defined.start()]
    hints, signature, device = _HINTS.search(head), _SIGNATURE.search(head), _DEVICE.search(head)
    return kernel_of_parts(
        name=defined[1],
        heuristic=decorated[1],
        function=text[defined.start() :],
        size_hints={k: int(v) for k, v in _HINT.findall(hints[1])} if hints else {},
        signature=[v for _, v in _ARGUMENT.findall(signature[1])] if signature else [],
        device=dict(_PROPERTY.findall(device[1])) if device else {},
    )


def kernel_of_parts(
    name: str,
    heuristic: str,
    function: str,
    size_hints: Mapping[str, int],
    signature: Sequence[str],
    device: Mapping[str, object],
) -> InductorKernel:
    """Build a kernel from its parts: `heuristic` is the decorator's name, `function` the text from
    `def` on; `size_hints` are the elements of each loop, rounded up to powers of two, which its
    text may have exactly; `device` has `type`, `cc` and `multi_processor_count`."""
    body = _function(function)
    types = tuple(kind for kind in signature if kind != "constexpr")
    place = ":".join(str(device.get(k, "")) for k in ("type", "cc", "multi_processor_count"))
    hints = tuple((prefix, int(size)) for prefix, size in size_hints.items())
    digest = _digest(body, repr(hints), ",".join(types), place)
    numels = tuple(_numel(body, prefix, size) for prefix, size in hints)
    dtypes = dict.fromkeys(_dtype(kind) for kind in types if kind.startswith("*"))
    return InductorKernel(
        name=name,
        op=_HEURISTICS.get(heuristic, heuristic),
        signature=types,
        device=place,
        inputs=inputs_of(_NUMBER.sub("", name), [*numels, *dtypes], digest),
    )


def comparable_config(kwargs: Mapping[str, Any], num_warps: int, num_stages: int) -> dict[str, Any]:
    """Return what distinguishes configs of one kernel, in the form that `cache.configs.described`
    names. Inductor also compares only the constants by name, the warps and the stages."""
    return {
        "kwargs": dict(sorted(kwargs.items())),
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


def _function(text: str) -> str:
    """Return the function at the beginning of `text` without its name and later helpers."""
    lines = text.strip().split("\n")
    open_, end = 0, 0
    for end, line in enumerate(lines, 1):  # noqa: B007
        code = line.partition("#")[0].rstrip()
        open_ += sum(map(code.count, "([")) - sum(map(code.count, ")]"))
        if open_ <= 0 and code.endswith(":"):
            break
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t"):
        end += 1
    whole = "\n".join(lines[:end]).rstrip()
    return _DEFINED.sub("(", whole, count=1)


def _numel(function: str, prefix: str, hint: int) -> int:
    match = re.search(rf"^\s+{prefix}numel = (\d{{1,18}})\s*$", function, re.MULTILINE)
    return int(match[1]) if match else hint


def _dtype(kind: str) -> str:
    name = kind.lstrip("*k")
    short = _SHORT.match(name)
    long = _DTYPES.get(name) or (f"{_LONG[short[1]]}{short[2]}" if short else name)
    return f"torch.{long}" if long.isidentifier() else "torch.void"


def _digest(*parts: str) -> str:
    """Return a digest in the form of Triton's folder names."""
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    raw = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(raw).decode().rstrip("=")

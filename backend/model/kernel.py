"""The key under which a kernel of `@triton.autotune` was tuned.

Triton keeps times below a folder that is named after a digest of the kernel's source, its key, the
configs to try, the device and Triton itself. Our inputs key says of these what can be read, and
behind it the first characters of the digest, which tell kernels of one name apart:
`matmul_kernel[1024, 512, "torch.float16"]:K4WQ7XJA`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

TRITON = "triton"
"""The op of all of them."""
_CACHED = re.compile(r"[A-Z2-7]{52}")
_DIGEST = 8
_DTYPE = re.compile(r"torch\.\w{1,40}")


def is_digest(name: str) -> bool:
    """Whether a folder is called as Triton calls those of its cache: base32 of a SHA-256."""
    return _CACHED.fullmatch(name) is not None


def inputs_of(kernel: str, key: Sequence[object], digest: str) -> str:
    """The inputs key, of JSON values; without its last part where `digest` is none of Triton's."""
    text = f"{kernel}{json.dumps(list(key))}"
    return f"{text}:{digest[:_DIGEST]}" if is_digest(digest) else text


def kernel_of(inputs: str) -> str:
    """The kernel's name."""
    return inputs.partition("[")[0]


def alike(inputs: str) -> str:
    """The part of an inputs key that other machines and other builds share."""
    return inputs[: inputs.rfind("]") + 1] or inputs


def is_of(inputs: str, digest: str) -> bool:
    """Whether this inputs key may belong to the folder of this name."""
    return is_digest(digest) and inputs.endswith(f"]:{digest[:_DIGEST]}")


def sizes_of(inputs: str) -> str:
    """What stands in the key but for its types: `1024×512`."""
    return "×".join(str(part) for part in _parts(inputs) if not _is_dtype(part))


def dtypes_of(key: Sequence[object]) -> tuple[str, ...]:
    """The types among the values of a key, `torch.float16`."""
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

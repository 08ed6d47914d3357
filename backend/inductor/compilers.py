"""What compiles our choices for an AMD GPU, by names that are the same where the code is."""

from __future__ import annotations

import hashlib
import json

from backend.templates.errors import TritonMissingError
from backend.templates.triton.module_file import triton
from backend.toolchain import targets
from backend.toolchain.identity import toolchain_of
from backend.toolchain.target import Missing, Target, amdgpu

HIP, TRITON = "hip", "triton"


def compilers_for(arch: str) -> dict[str, str]:
    """By language, of those that are here; `arch` is `gfx942`, features may follow."""
    target = amdgpu(arch)
    found = {HIP: _hip(target), TRITON: _triton(target)}
    return {language: name for language, name in found.items() if name}


def _hip(target: Target) -> str:
    compiler = targets.find(target)
    if isinstance(compiler, Missing) or not targets.usable(compiler):
        return ""
    return toolchain_of(compiler)


def _triton(target: Target) -> str:
    """Of all that stands in the key of Triton's cache beside a kernel and its options
    (`triton.runtime.cache.get_cache_key`): its own files, the target, the libraries that are linked
    and variables of the environment. Empty where this Triton does not tell."""
    try:
        made, cache = triton("triton.compiler.compiler"), triton("triton.runtime.cache")
        gpu = triton("triton.backends.compiler").GPUTarget("hip", target.arch, target.wave)
        key = getattr(cache, "triton_key", None) or made.triton_key
        backend = made.make_backend(gpu)
        parts = [
            key(),
            backend.hash(),
            backend.parse_options({}).hash(),
            sorted(made.get_cache_invalidating_env_vars().items()),
        ]
    except (TritonMissingError, AttributeError, RuntimeError, OSError, ValueError):
        return ""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

"""Make torch behave as it does on an x86-64 CPU with AVX2 and without AVX-512, VNNI and AMX.

`TEST_CPU=avx2 python -m pytest tests/torch` runs tests so, in pytest and in every Python that they
start: conftest.py (by hasten.py) and sitecustomize.py call `emulate`. PyTorch looks at the
CPU in four ways, and each needs its own switch:

- ATen's vectorized kernels and Inductor's C++ obey ATEN_CPU_CAPABILITY.
- oneDNN obeys ONEDNN_MAX_CPU_ISA, MKL obeys MKL_ENABLE_INSTRUCTIONS.
- Everything else (`mkldnn._is_mkldnn_bf16_supported`, `torch.cpu`, FBGEMM, XNNPACK) reads the
  structure `cpuinfo_isa` of libcpuinfo, which libc10 exports. No variable limits it, so its fields
  are cleared before libtorch_cpu is loaded.
- Inductor gives g++ `-march=native`, which ../compilers/kept.py replaces.

Programs that are not Python (an AOTInductor package in a C++ runner) see the variables alone.
"""

import ctypes
import importlib.machinery
import os
import re
import sys
from pathlib import Path

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
ABSENT = re.compile(r"avx512|avx10|avx_?vnni|avx_ne_convert|amx_")
"""Fields of `struct cpuinfo_x86_isa` that such a CPU does not set."""


class _BeforeTorch:
    """A finder that finds nothing: it clears the fields when torch is about to be imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name != "torch":
            return
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            _clear(spec.submodule_search_locations[0])


def emulate() -> None:
    """Set the switches of this process and of all that it starts, where TEST_CPU asks for them."""
    wanted = os.environ.get("TEST_CPU")
    if wanted is None:
        return
    if wanted != "avx2":
        raise SystemExit(f"TEST_CPU={wanted}: only avx2 can be emulated")
    if "torch" in sys.modules:
        raise RuntimeError("torch was imported before its CPU could be limited")
    os.environ.update(VARIABLES)
    if not any(isinstance(finder, _BeforeTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorch())


def _clear(torch: str) -> None:
    """Clear the fields in the copy of libc10 that torch will use."""
    fields = _fields(Path(torch, "include", "cpuinfo.h").read_text())
    libc10 = ctypes.CDLL(str(Path(torch, "lib", "libc10.so")))
    libc10.cpuinfo_initialize()
    isa = (ctypes.c_bool * len(fields)).in_dll(libc10, "cpuinfo_isa")
    if not isa[fields.index("avx2")]:
        raise SystemExit("TEST_CPU=avx2: this CPU has no AVX2")
    for at, field in enumerate(fields):
        if ABSENT.match(field):
            isa[at] = False


def _fields(header: str) -> list[str]:
    """The fields of the structure as compiled for x86-64, in order; each is one `bool`."""
    found = re.search(r"struct cpuinfo_x86_isa \{(.*?)\n\};", header, re.DOTALL)
    if found is None:
        raise RuntimeError("cpuinfo.h of torch has no struct cpuinfo_x86_isa")
    only_32_bit = re.compile(r"#if CPUINFO_ARCH_X86\n.*?#endif\n", re.DOTALL)
    return re.findall(r"\bbool (\w+);", only_32_bit.sub("", found[1]))

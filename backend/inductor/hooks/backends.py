"""The backends configured in Inductor by a process, and why some of them cannot appear in it.

Inductor silently leaves a backend out if the device, the build of torch or a missing package does
not fit (torch 2.13.0: `use_triton_template`, `use_ck_template`, `use_cutlass_template`, ... of
torch/_inductor/utils.py). Conditions on one tuning's operands are not covered here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from backend.disk.layout import cache_dir
from backend.errors import TritonMissingError
from backend.inductor.hooks.environment import TEMPLATES, is_on
from backend.inductor.torch import tuning as torch_api
from backend.templates.triton.module_file import triton
from backend.toolchain import code_cache, targets
from backend.toolchain.code_cache import toolchain_of
from backend.toolchain.target import Missing, Target, amdgpu, cpu, cuda

CONVOLUTION = "conv:"
"""The prefix of a backend for convolutions, which have a separate list."""

_LISTS = {"": "max_autotune_gemm_backends", CONVOLUTION: "max_autotune_conv_backends"}
_STOCK = (["ATEN", "TRITON", "CPP"], ["ATEN", "TRITON"])
"""The default lists of torch 2.13.0."""
_CK = "ck4inductor"
_CK_PARTS = ("ck4inductor.universal_gemm.gen_instances", "ck4inductor.universal_gemm.op")
_FLYDSL_ARCH = "gfx950"
"""The only architecture of PyTorch's FlyDSL products (pytorch#190903)."""
_CONFIG = "torch/_inductor/config.py"
_FEW_SMS = 68
"""The multiprocessors below which Inductor considers an NVIDIA GPU too small."""


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """The facts that determine which backends can appear. `arch` is gcnArchName or `sm_90`; `kind`
    is torch's device type, which is `cuda` on ROCm too. `missing(module)` returns why a module
    cannot be imported, or an empty string."""

    kind: str
    hip: bool
    arch: str
    major: int
    units: int
    cpu_backend: str
    ck_arches: Collection[str]
    wanted_arches: Collection[str]
    cutlass_dir: str
    template_target: Target
    missing: Callable[[str], str]


def requested(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the backends of Inductor's two lists as currently set, and `ROCM` for our templates.
    If a list is torch's default, backends for other devices are left out."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    names: list[str] = []
    for mark, option in _LISTS.items():
        given = str(torch_api.setting(option) or "").upper()
        listed = [name.strip() for name in given.split(",") if name.strip()]
        if listed in _STOCK:
            listed = [name for name in listed if name != ("TRITON" if kind == "cpu" else "CPP")]
        names += [mark + name for name in listed]
    on = getattr(
        torch_api.selector(), "offers_templates", False
    )  # set if the program turned them on
    if on or is_on(TEMPLATES, env):
        names.append("ROCM")
    return tuple(dict.fromkeys(names))


def absent(names: Collection[str], machine: BackendFacts) -> tuple[str, ...]:
    """Return `NAME: reason` for each of the backends that cannot appear on this machine."""
    bare = dict.fromkeys(name.removeprefix(CONVOLUTION) for name in names)
    reasons = ((name, _REASONS[name](machine)) for name in bare if name in _REASONS)
    return tuple(f"{name}: {reason}" for name, reason in reasons if reason)


def this_machine() -> BackendFacts:
    """Return the facts of the current GPU, else the CPU."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    major = units = 0
    if kind == "cuda":
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        major, units = int(gpu.major), int(gpu.multi_processor_count)
    return BackendFacts(
        kind=kind,
        hip=bool(torch.version.hip),
        arch=torch_api.device_facts().arch or "",
        major=major,
        units=units,
        cpu_backend=str(torch_api.setting("cpu_backend") or "cpp"),
        ck_arches=torch_api.setting("rocm.ck_supported_arch") or (),
        wanted_arches=torch_api.setting("rocm.arch") or (),
        cutlass_dir=_cutlass_dir(),
        missing=missing,
        template_target=template_target(torch.device(kind)),
    )


def _cutlass_dir() -> str:
    """Return the folder of CUTLASS, which moved in torch 2.11."""
    names = ("cutlass.cutlass_dir", "cuda.cutlass_dir")
    return next((str(folder) for name in names if (folder := torch_api.setting(name))), "")


def template_target(device: torch.device) -> Target:
    """Return the compile target of our HIP templates on a CPU or a GPU."""
    if device.type == "cpu":
        return cpu()
    arch = torch_api.device_facts(device).arch or ""
    return amdgpu(arch) if torch.version.hip else cuda(arch).specific


def no_library(target: Target) -> str:
    """Return why no library can be loaded for the target, now or from an earlier build."""
    compiler = targets.find_compiler(target)
    if isinstance(compiler, Missing):
        return "" if code_cache.has_libraries(target, cache_dir()) else compiler.reason
    return "" if targets.usable(compiler) else f"{compiler.version} makes no library"


def missing(module: str) -> str:
    """Return why a module cannot be imported, in a line; empty if it is installed."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        return f"{module} cannot be imported: {error}"
    return "" if spec else f"{module} is not installed"


def _triton(machine: BackendFacts) -> str:
    if machine.kind == "cpu":
        wrong = machine.cpu_backend != "triton"
        return "the device is a CPU, for which Inductor writes C++" if wrong else ""
    if gone := machine.missing("triton"):
        return gone
    return _too_small(machine)


def _too_small(machine: BackendFacts) -> str:
    """Return the reason of `is_big_gpu` for a GPU that is too small."""
    if machine.hip and (machine.major < 9 or machine.major == 10):
        return f"Inductor uses no templates on {_bare(machine.arch)}"
    if not machine.hip and machine.units < _FEW_SMS:
        return f"Inductor uses no templates on a GPU with {machine.units} multiprocessors"
    return ""


def _rocm(
    why_not: Callable[[BackendFacts], str],
) -> Callable[[BackendFacts], str]:
    """Return the reason against a backend for AMD's GPUs, which `why_not` returns on one."""

    def reason(machine: BackendFacts) -> str:
        if not machine.hip:
            return "this torch is not a ROCm build"
        return "no GPU is seen" if machine.kind == "cpu" else why_not(machine)

    return reason


def _ck(machine: BackendFacts) -> str:
    wanted = {_bare(arch) for arch in machine.wanted_arches} or {_bare(machine.arch)}
    if not wanted & set(machine.ck_arches):
        names, supported = ", ".join(sorted(wanted)), ", ".join(machine.ck_arches)
        return f"Inductor has it for {supported}, not for {names}"
    if machine.missing(_CK):
        return f"{_CK} is not installed: it comes with ROCm/composable_kernel"
    broken = (reason for part in _CK_PARTS if (reason := machine.missing(part)))
    return next(broken, "")


def _flydsl(machine: BackendFacts) -> str:
    if machine.missing("torch._inductor.codegen.flydsl"):
        return "this torch has no FlyDSL backend"
    if _bare(machine.arch) != _FLYDSL_ARCH:
        return f"Inductor has it for {_FLYDSL_ARCH}, not for {_bare(machine.arch)}"
    return machine.missing("flydsl")


def _nvidia(
    why_not: Callable[[BackendFacts], str],
) -> Callable[[BackendFacts], str]:
    """Return the reason against a backend for NVIDIA's GPUs, which `why_not` returns on one."""

    def reason(machine: BackendFacts) -> str:
        other = machine.hip or machine.kind == "cpu"
        return "it is for GPUs of NVIDIA's" if other else why_not(machine)

    return reason


def _cutlass(machine: BackendFacts) -> str:
    if not Path(machine.cutlass_dir, "python", "cutlass_library").is_dir():
        return f"there is no CUTLASS in {machine.cutlass_dir or 'cutlass.cutlass_dir'}"
    return _too_small(machine)


def _cutedsl(machine: BackendFacts) -> str:
    if machine.major != 10:
        return f"it is for Blackwell GPUs, not for {machine.arch}"
    return machine.missing("cutlass")


def _bare(arch: str) -> str:
    return arch.partition(":")[0]


_REASONS: Mapping[str, Callable[[BackendFacts], str]] = {
    "TRITON": _triton,
    "CK": _rocm(_ck),
    "CKTILE": _rocm(_ck),
    "FLYDSL": _rocm(_flydsl),
    "CUTLASS": _nvidia(_cutlass),
    "CUTEDSL": _nvidia(_cutedsl),
    "NVGEMM": _nvidia(lambda gpu: gpu.missing("cutlass") or gpu.missing("cutlass_api")),
    "CPP": lambda machine: "" if machine.kind == "cpu" else "its templates are for CPUs",
    # Our Triton templates need no compiler of ours, so this is the reason for the others.
    "ROCM": lambda machine: no_library(machine.template_target),
}


def recommended(
    machine: BackendFacts, setting: Callable[[str], object] = torch_api.setting
) -> tuple[str, ...]:
    """Return `NAME=VALUE: reason (source)` for each setting that PyTorch's own sources recommend on
    such a GPU, that this torch has, and that is not set."""
    if not machine.hip or machine.kind == "cpu":
        return ()
    lines: list[str] = []
    if setting("use_torch_profiler_benchmarker") is False:
        why = "events do not time short kernels accurately on ROCm (pytorch#175097)"
        lines.append(f"TORCHINDUCTOR_USE_TORCH_PROFILER_BENCHMARKER=1: {why}")
    gone = machine.missing("flydsl")
    listed = "FLYDSL" in str(setting("max_autotune_gemm_backends")).upper().split(",")
    if _flydsl(machine) == gone and not (listed and setting("flydsl_enable_autotuning")):
        names = "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS=ATEN,TRITON,FLYDSL"
        why = "its authors measured bf16 products on gfx950 1.15 times as fast as ATen's"
        needs = "; it needs the package flydsl" if gone else ""
        lines.append(f"{names} FLYDSL_ENABLE_AUTOTUNING=1: {why}{needs} (pytorch#190903)")
    if setting("layout_optimization") is False:
        why = f"for models with convolutions in channels-last; off by default on ROCm ({_CONFIG})"
        lines.append(f"TORCHINDUCTOR_LAYOUT_OPTIMIZATION=1: {why}")
    return tuple(lines)


HIP_LANGUAGE, TRITON_LANGUAGE = "hip", "triton"


def compilers_for(arch: str) -> dict[str, str]:
    """Return the installed compilers by language; `arch` is `gfx942`, features may follow."""
    target = amdgpu(arch)
    names = {HIP_LANGUAGE: _hip_compiler(target), TRITON_LANGUAGE: _triton_compiler(target)}
    return {language: name for language, name in names.items() if name}


def _hip_compiler(target: Target) -> str:
    compiler = targets.find_compiler(target)
    if isinstance(compiler, Missing) or not targets.usable(compiler):
        return ""
    return toolchain_of(compiler)


def _triton_compiler(target: Target) -> str:
    """Return the contents of Triton's cache key beside a kernel and its options
    (`triton.runtime.cache.get_cache_key`): its own files, the target, the linked libraries and
    environment variables. Empty if this Triton does not expose it."""
    try:
        compiler, cache = triton("triton.compiler.compiler"), triton("triton.runtime.cache")
        gpu = triton("triton.backends.compiler").GPUTarget("hip", target.arch, target.wave)
        key = getattr(cache, "triton_key", None) or compiler.triton_key
        backend = compiler.make_backend(gpu)
        parts = [
            key(),
            backend.hash(),
            backend.parse_options({}).hash(),
            sorted(compiler.get_cache_invalidating_env_vars().items()),
        ]
    except (TritonMissingError, AttributeError, RuntimeError, OSError, ValueError):
        return ""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

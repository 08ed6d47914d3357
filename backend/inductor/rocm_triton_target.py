"""What our Triton templates are made for on a device, or why they are not offered there."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

import torch

from backend.inductor.rocm_triton_runtime import INTERPRETER
from backend.inductor.saying import say_once
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import INTERPRET, interpreter_on


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """`arch` decides configs and launch options; the interpreter takes those of a GPU's too."""

    arch: str
    interpreted: bool = False

    def __str__(self) -> str:
        return INTERPRETER if self.interpreted else self.arch


def target_of(device: torch.device) -> TritonTarget | None:
    """None where there is nothing to make; a reason is said where one could help it."""
    target = _target(device)
    if target is not None and (reason := missing()):
        say_once(f"our Triton template is off for {target}: {reason}")
        return None
    return target


def missing() -> str:
    """Why Triton cannot be used by this Python, in a line; nothing if it can."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return "Triton cannot be imported: install the package triton, or pytorch-triton-rocm"


@functools.cache
def _target(device: torch.device) -> TritonTarget | None:
    if device.type == "cpu":
        return TritonTarget("gfx942", interpreted=True) if interpreter_on() else None
    if device.type != "cuda" or not torch.version.hip:
        return None
    arch = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    if interpreter_on():
        say_once(f"our Triton template is off for {arch}: {INTERPRET} is set")
    elif arch not in ARCHES:
        say_once(f"our Triton template is off for {arch}: it knows {', '.join(ARCHES)}")
    else:
        return TritonTarget(arch)
    return None

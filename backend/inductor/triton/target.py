"""What our Triton templates are made for on a device, or why they are not offered there."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

import torch

from backend.inductor.guard import say_once
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import INTERPRET, INTERPRETER, interpreter_on


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """`arch` decides configs and launch options; the interpreter takes those of a GPU's too."""

    arch: str
    interpreted: bool = False

    def __str__(self) -> str:
        return INTERPRETER if self.interpreted else self.arch


@dataclass(frozen=True, slots=True)
class Off:
    """Why a device gets none, in a line. `quiet` where nobody there would expect one."""

    reason: str
    quiet: bool = False


def target_of(device: torch.device) -> TritonTarget | None:
    """None where there is nothing to make; a reason is said where one could help it."""
    target = _target(device)
    if isinstance(target, TritonTarget) and (reason := missing()):
        target = Off(f"our Triton template is off for {target}: {reason}")
    if isinstance(target, TritonTarget):
        return target
    if not target.quiet:
        say_once(target.reason)
    return None


def examine(device: torch.device) -> TritonTarget | Off:
    """The same for a person who asks: Triton comes first, whatever the device is."""
    reason = missing()
    return Off(reason) if reason else _target(device)


def missing() -> str:
    """Why Triton cannot be used by this Python, in a line; nothing if it can."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return "Triton cannot be imported: install the package triton, or pytorch-triton-rocm"


@functools.cache
def _target(device: torch.device) -> TritonTarget | Off:
    known = ", ".join(ARCHES)
    if device.type == "cpu":
        if interpreter_on():
            return TritonTarget("gfx942", interpreted=True)
        return Off(f"on a CPU it runs only with {INTERPRET}=1, for tests", quiet=True)
    if device.type != "cuda" or not torch.version.hip:
        return Off(f"it is made for AMD's {known}", quiet=True)
    arch = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    if interpreter_on():
        return Off(f"our Triton template is off for {arch}: {INTERPRET} is set")
    if arch not in ARCHES:
        return Off(f"our Triton template is off for {arch}: it knows {known}")
    return TritonTarget(arch)

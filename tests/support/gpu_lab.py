"""Starts the calls of `template_lab` on a GPU: the same operands, the same checks.

Each operand is copied to memory of the GPU, where bytes stand before it and behind it that must
come back as they were, and what the kernel makes of it is copied back.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from backend.templates.rendering import Rendered
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, Target, cpu
from tests.support.template_lab import OPTIONS, Kernel, Memory

GUARD = 4096
"""Bytes before and behind each operand."""
WHOLE = 256
"""What torch's memory is aligned to. Operands keep how they lie to that."""


@dataclass
class Gpu:
    """The device that is current, and how many calls it has had; with `exact` each allocation ends
    where its operand does, but for an alignment of 16, for a tool that watches allocations. `cpu`
    is for trying this module."""

    device: str = "cuda"
    exact: bool = False
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    kind: str = ""

    @property
    def target(self) -> Target:
        if self.device == "cpu":
            return cpu()
        from backend.inductor.hooks.backends import template_target  # loads Inductor

        return template_target(torch.device("cuda", 0))

    def build(self, rendered: Rendered, root: Path) -> Kernel:
        """Raises ToolchainError."""
        options = OPTIONS if self.device == "cpu" else CompileOptions()
        compiled = code_cache.compile(rendered.source, self.target, options, cache_root=root)
        library = code_cache.load(compiled.path)
        pointers = sum(arg.kind in ("input", "output") for arg in rendered.args)
        types = code_cache.argtypes(pointers, len(rendered.args) - pointers)
        entry = library.entry(rendered.name, types)
        return Kernel(rendered, entry, library.error_text, self.start)

    def start(
        self, call: code_cache.Entry, values: Sequence[torch.Tensor | int], workspace: Memory
    ) -> int | str:
        """As `template_lab.Start`: the code of the call, or what it did beyond its operands."""
        self.calls[self.kind] += 1
        begin = workspace.at_end(workspace.room)
        room = workspace.bytes[begin : begin + workspace.room]
        copies = [Copy(_bytes(value), self.device, self.exact) for value in (*values, room)
                  if isinstance(value, torch.Tensor)]  # fmt: skip
        moved = iter(copies)
        arguments = [next(moved).address if isinstance(x, torch.Tensor) else x for x in values]
        stream = None if self.device == "cpu" else torch.cuda.current_stream().cuda_stream
        if code := call(*arguments, None, copies[-1].address, stream):
            return code
        if self.device != "cpu":
            torch.cuda.synchronize()
        if not all(copy.guarded() for copy in copies):
            return "wrote outside of an operand or of the workspace"
        for copy in copies:
            copy.back()
        return 0


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """From the first to the last byte of a tensor, what lies between its lines included."""
    item = tensor.element_size()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = (sum((n - 1) * step for n, step in steps) + 1) * item if tensor.numel() else 0
    whole = torch.empty(0, dtype=torch.uint8)
    return whole.set_(tensor.untyped_storage(), tensor.storage_offset() * item, (span,), (1,))


class Copy:
    """Bytes in the memory of the GPU, as far from a whole address as they were."""

    def __init__(self, host: torch.Tensor, device: str, exact: bool) -> None:
        self.host = host
        self._begin = GUARD + host.data_ptr() % WHOLE
        behind = -(self._begin + host.numel()) % 16 if exact else GUARD
        size = self._begin + host.numel() + behind
        self._all = torch.full((size,), 0xFF, dtype=torch.uint8, device=device)
        self._own = self._all[self._begin : self._begin + host.numel()]
        self._own.copy_(host)

    @property
    def address(self) -> int:
        return self._all.data_ptr() + self._begin

    def guarded(self) -> bool:
        """Whether what stands around them is as it was."""
        before, behind = self._all[: self._begin], self._all[self._begin + self.host.numel() :]
        return bool((before == 0xFF).all() & (behind == 0xFF).all())

    def back(self) -> None:
        self.host.copy_(self._own)

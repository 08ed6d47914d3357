"""Triton's driver of a gfx942 that is not here: it compiles for it, and what a launch does is said
by who sets `launcher_cls`."""

from __future__ import annotations

from typing import Any, ClassVar

from triton.backends.compiler import GPUTarget


class Utils:
    def load_binary(self, name: str, *rest: object) -> tuple[object, ...]:
        return 1, name, 0, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 65536, "warpSize": 64}


class NoGpu:
    launcher_cls: ClassVar[Any]
    utils = Utils()

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def map_python_to_cpp_type(self, name: str) -> str:
        return name


class Tensor:
    """What a launch asks of one."""

    dtype = "torch.float32"

    def data_ptr(self) -> int:
        return 1 << 14

"""Triton with a driver that knows its target, `gfx942`, and no GPU: code is written for it, and run
by Triton's interpreter, where TRITON_INTERPRET is set, on tensors of the CPU."""

import contextlib
import os

with contextlib.suppress(ImportError):
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("hip", os.environ["TRITON_TARGET"], 64)

    driver.set_active(Driver())

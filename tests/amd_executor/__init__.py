"""Runs the AMD machine code of our kernels without an AMD GPU.

`assembly` reads the instructions that LLVM makes of a kernel, `core/` executes them lane by lane,
and `library` compiles the kernel's own host code against a stand-in for HIP's runtime, so that a
kernel is called as on a GPU. `python -m tests.amd_executor` tries every template.
"""

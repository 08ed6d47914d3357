"""Kernel templates: HIP C++ from Jinja, one source for AMD GPUs, NVIDIA GPUs and the CPU.

Nothing here imports torch. A `GemmProblem` (what to compute) and a config (how) render to a source
with one C entry; what plugs it into Inductor wraps these with Inductor's own classes.
"""

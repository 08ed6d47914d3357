"""Kernel templates without torch: a `GemmProblem` (what to compute) and a config (how) render to a
source with one C entry, in HIP C++ from Jinja for AMD GPUs, NVIDIA GPUs and the CPU alike."""

"""Compilers for AMD GPUs, NVIDIA GPUs and the CPU, and the resources of compiled kernels."""

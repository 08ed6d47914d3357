"""Compilers for AMD GPUs, NVIDIA GPUs and the CPU: what they make, and what that takes."""

"""Our Triton kernels as choices of Inductor's."""

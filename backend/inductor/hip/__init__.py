"""Our HIP kernels as choices of Inductor's, and the code that they share with Triton kernels."""

"""Our kernels in HIP as choices of Inductor's, and what they share with those in Triton."""

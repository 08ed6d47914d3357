"""Our kernels in Triton as choices of Inductor's."""

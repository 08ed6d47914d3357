"""A kernel of ours as a folder that a kernel engineer can build and run, without PyTorch."""

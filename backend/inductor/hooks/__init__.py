"""What stands in Inductor's place in a program that runs under `rocm-tui run`."""

"""The replacements of Inductor's parts in a program that runs under `rocm-tui run`."""

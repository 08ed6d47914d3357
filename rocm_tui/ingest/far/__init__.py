"""Sources of another host: what its rocm-tui reads there, told line by line."""

"""A library of the shape of Composable Kernel, for the CPU target: see ck.py of the templates."""

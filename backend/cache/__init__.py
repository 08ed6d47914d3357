"""Inductor's autotune cache: read, edited in place, and our journal of new timings beside it."""

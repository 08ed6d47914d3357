"""Inductor's autotune cache: reading, editing in place, and our journal of new timings."""

"""Trials of captured graphs: reading and compiling them, timing whole passes."""

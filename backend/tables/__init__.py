"""Tuned tables, other tuners' files: bytes become a `Table` of entries, and back, byte for byte.

Each tuner has one line in `registry`. What a row means to a BLAS library is a `Gemm`; `gemm`
turns that into the problem of row-major torch that led to it. What cannot be told is `NotAProblem`,
never a guess.
"""

"""Tuned tables, other tuners' files: bytes become a `Table` of entries, and back, byte for byte.

Each tuner has one line in `registry`. What cannot be translated into a problem of torch is
`NotAProblem`, never a guess.
"""

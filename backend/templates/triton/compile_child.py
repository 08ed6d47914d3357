"""Compiles one choice for its arch in a process of its own: LLVM ends the one that it fails in.

Reads a pickled (choice, folder) from stdin, which only its parent writes. Says on stdout why a
choice cannot be compiled, and ends with status 1.
"""

from __future__ import annotations

import os
import pickle
import sys

from backend.templates.errors import TemplateError
from backend.templates.triton.code_object import compile_choice


def main() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)  # what Triton prints is not an answer
    choice, folder = pickle.load(sys.stdin.buffer)
    try:
        compile_choice(choice, folder)
    except TemplateError as error:
        os.write(answer, str(error).encode())
        return 1
    return 0

"""What somebody else raised, in one line. Imports no torch."""

from __future__ import annotations


def describe(error: BaseException) -> str:
    """An exception in one line. A C++ compiler's first `error:` line says most of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if " error: " in line), None)
    text = telling or " ".join(lines[:2])
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__

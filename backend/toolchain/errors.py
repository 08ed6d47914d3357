"""What can go wrong with a compiler or a library of kernels.

ToolchainError
├── MissingCompilerError   no compiler for this target here
├── CompileError           the compiler said no
│   └── CompileTimeoutError    it did not end in time
├── CacheError             the code cache cannot be used
├── HeadersError           a folder of headers is gone, or has changed
└── LoadError              a library or its entry cannot be loaded
    └── KernelError        an entry returned an error code
"""

from __future__ import annotations

from pathlib import Path


class ToolchainError(Exception):
    """The root: `str()` is one line for a person."""


class MissingCompilerError(ToolchainError):
    """No compiler for this target here; the message says what to install."""


class CacheError(ToolchainError):
    """The code cache's folder cannot be trusted or written."""


class HeadersError(ToolchainError):
    """A folder of headers cannot be read, or is no more what it was."""


class CompileError(ToolchainError):
    """A failed compile: what was run, what it said first, and on which source.

    `errors` has at least one line. `log_path` holds the command and all that it printed.
    """

    def __init__(
        self, target: str, command: str, errors: tuple[str, ...], source: Path, log_path: Path
    ) -> None:
        super().__init__(target, command, errors, source, log_path)
        self.target = target
        self.command = command
        self.errors = errors
        self.source_path = source
        self.log_path = log_path

    def __str__(self) -> str:
        return (
            f"cannot compile {self.source_path} for {self.target}: {self.errors[0]}"
            f" (command and output: {self.log_path})"
        )


class CompileTimeoutError(CompileError):
    """The compiler was stopped, or another process kept the key, for longer than allowed."""


class LoadError(ToolchainError):
    """A library cannot be loaded, or lacks the entry."""


class KernelError(LoadError):
    """An entry returned a code other than 0; `code` is HIP's or CUDA's error number."""

    def __init__(self, entry: str, code: int, text: str) -> None:
        super().__init__(entry, code, text)
        self.code = code

    def __str__(self) -> str:
        entry, code, text = self.args
        return f"{entry} returned error {code}: {text}"

"""The errors of the backend, except those of one benchmark (`inductor/benchmark/errors.py`).

Each message is one line: what happened, where, what to do.
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """The root of file errors."""

    @property
    def is_absent(self) -> bool:
        """Whether the cause is that the file is not there."""
        return isinstance(self.__cause__, (FileNotFoundError, NotADirectoryError))


class CacheUnreadable(StoreError):
    """A file cannot be parsed or read. It is kept as it is, never overwritten."""


class UnsafePath(StoreError):
    """Refused to write through a symlink or into a folder that others can change: that could write
    for, or as, another user."""


class NotWritable(StoreError):
    """The file could not be written: it is read-only, or the disk is full. What it held before is
    still there."""


class Busy(NotWritable):
    """Another process holds the lock, and did not let it go while we waited."""


class PinRefused(StoreError):
    """The pin makes no sense: its choice failed or is unknown, or nothing is pinned."""


class InputsKeyInvalid(StoreError, ValueError):
    """A text is not an inputs key."""


class EventInvalid(StoreError, ValueError):
    """A line of an event log is not an event."""


class ShareInvalid(StoreError):
    """A file is not an export of pins. Nothing is imported from it."""


class MegaCacheInvalid(StoreError):
    """A file is not the output of `save_cache_artifacts`, or only a part."""


class TemplateError(Exception):
    """The root of template errors."""


class UnsupportedProblemError(TemplateError):
    """The problem is outside of the template's scope; the message says which operand and why."""


class ConfigError(TemplateError):
    """A config does not suit this problem or target; the message names the broken rule."""


class UncompiledError(ConfigError):
    """No compiler is available, and the kernel was not compiled before."""


class RenderError(TemplateError):
    """A template used its kernel wrongly: an unknown operand, a size that no argument gives."""


class HookError(RenderError):
    """A hook is unknown, missing, filled twice, or called with unknown arguments."""


class ExpressionError(RenderError):
    """A sympy or pointwise expression that cannot be written in Triton."""


class TritonError(TemplateError):
    """The root of errors in which Triton itself is involved."""


class TritonMissingError(TritonError):
    """Triton is an optional extra; the message says how to get it."""


class TritonCompileError(TritonError):
    """Triton could not compile a kernel; the message names the choice, the arch and the cause."""


class ToolchainError(Exception):
    """The root of compiler and library errors."""


class MissingCompilerError(ToolchainError):
    """No compiler for this target here; the message says what to install."""


class CacheError(ToolchainError):
    """The code cache's folder cannot be trusted or written."""


class CompileError(ToolchainError):
    """A failed compile: the command, its first errors, and the source. `errors` has at least one
    line. `log_path` holds the command and its whole output."""

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
    """The compiler, or another process that holds the key, exceeded the time limit."""


class LoadError(ToolchainError):
    """A library cannot be loaded, or lacks the entry."""


class KernelError(LoadError):
    """An entry returned a nonzero code; `code` is HIP's or CUDA's error number."""

    def __init__(self, entry: str, code: int, text: str) -> None:
        super().__init__(entry, code, text)
        self.code = code

    def __str__(self) -> str:
        entry, code, text = self.args
        return f"{entry} returned error {code}: {text}"


def brief(text: str, limit: int = 120) -> str:
    """Return `text` as one printable line of at most `limit` characters, for use in a message."""
    line = text[: limit + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"

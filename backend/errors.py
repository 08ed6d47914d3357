"""The errors of the backend, but for those of one benchmark (`inductor/benchmark/errors.py`).

Each message is one line: what happened, where, what to do.

StoreError: files below the cache dir
  CacheUnreadable     a file cannot be parsed or read; it is kept as it is
  UnsafePath          writing there could write for, or as, another user
  NotWritable         read-only, no permission, or the disk is full; the old file is intact
    Busy                another process holds the lock
  PinRefused          the pin makes no sense: failed, unknown, not pinned at all, not what was asked
  InputsKeyInvalid    a text that is not an inputs key (also a ValueError)
  EventInvalid        a line that is not an event (also a ValueError)
  ShareInvalid        a file that is not an export of pins
  MegaCacheInvalid    a file that is not a mega-cache

TemplateError: what templates cannot do
  UnsupportedProblemError   no template computes this: layout, dtype, shape
  ConfigError               the config does not fit the problem or the target
    UncompiledError           there is no compiler, and its library was not compiled before
  RenderError               a template asked its kernel for something it does not have
    HookError                 a Triton template and its hooks do not fit together
    ExpressionError           a size or a pointwise expression has no Triton form
  TritonError               what Triton itself has a part in
    TritonMissingError        it cannot be imported
    TritonCompileError        it said no to a kernel

ToolchainError: compilers, and libraries of kernels
  MissingCompilerError      no compiler for this target here
  CompileError              the compiler said no
    CompileTimeoutError       it did not end in time
  CacheError                the code cache cannot be used
  HeadersError              a folder of headers is gone, or has changed
  LoadError                 a library or its entry cannot be loaded
    KernelError               an entry returned an error code
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """The root of what can go wrong with files."""


class CacheUnreadable(StoreError):
    """A file cannot be parsed or read. It is never overwritten."""


class UnsafePath(StoreError):
    """Refused to write through a symlink or into a folder that others can change."""


class NotWritable(StoreError):
    """The file could not be written; what it held before is still there."""


class Busy(NotWritable):
    """Another process holds the lock, and did not let it go while we waited."""


class PinRefused(StoreError):
    """What was asked of a pin cannot be done."""


class InputsKeyInvalid(StoreError, ValueError):
    """A text is not an inputs key."""


class EventInvalid(StoreError, ValueError):
    """A line of an event log is not an event."""


class ShareInvalid(StoreError):
    """A file is not an export of pins. Nothing of it is used."""


class MegaCacheInvalid(StoreError):
    """A file is not what `save_cache_artifacts` gives, or only a part of it."""


class TemplateError(Exception):
    """The root of what templates cannot do."""


class UnsupportedProblemError(TemplateError):
    """The problem is outside of what the template computes; says which operand and why."""


class ConfigError(TemplateError):
    """A config that may not be rendered for this problem or target; says which rule it breaks."""


class UncompiledError(ConfigError):
    """No compiler is here, and none has compiled this kernel before."""


class RenderError(TemplateError):
    """A template used its kernel wrongly: an unknown operand, a size that no argument gives."""


class HookError(RenderError):
    """A hook is unknown, missing, filled twice, or called with what it cannot know."""


class ExpressionError(RenderError):
    """A sympy or pointwise expression that cannot be written in Triton."""


class TritonError(TemplateError):
    """The root of what Triton itself has a part in."""


class TritonMissingError(TritonError):
    """Triton is an optional extra; the message says how to get it."""


class TritonCompileError(TritonError):
    """Triton could not compile a kernel; the message names the choice, the arch and the cause."""


class ToolchainError(Exception):
    """The root of what can go wrong with compilers and libraries."""


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


def brief(text: str, limit: int = 120) -> str:
    """`text` as one printable line of at most `limit` characters, for use in a message."""
    line = text[: limit + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"

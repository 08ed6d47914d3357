"""What a command says by its exit code."""

from __future__ import annotations

from enum import IntEnum

from rocm_tui.errors import UsageError


class ExitCode(IntEnum):
    YES = 0
    NO = 1
    USAGE = 2
    INTERRUPTED = 130
    """As a shell counts a program that Ctrl-C ended."""

    @classmethod
    def of(cls, yes: bool) -> ExitCode:
        return cls.YES if yes else cls.NO

    @classmethod
    def of_error(cls, error: BaseException) -> ExitCode:
        if isinstance(error, UsageError):
            return cls.USAGE
        return cls.INTERRUPTED if isinstance(error, KeyboardInterrupt) else cls.NO

"""What templates cannot do.

TemplateError
├── UnsupportedProblemError   no template computes this: layout, dtype, shape
├── ConfigError               the config does not fit the problem or the target
│   └── UncompiledError       there is no compiler, and its library was not made before
├── RenderError               a template asked its kernel for something it does not have
│   ├── HookError             a Triton template and its hooks do not fit together
│   └── ExpressionError       a size or a pointwise expression has no Triton form
└── TritonError               what Triton itself has a part in
    ├── TritonMissingError    it cannot be imported
    └── TritonCompileError    it said no to a kernel
"""

from __future__ import annotations


class TemplateError(Exception):
    """The root: `str()` is one line for a person."""


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

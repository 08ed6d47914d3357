"""What a template cannot do.

TemplateError
├── UnsupportedProblemError   no template computes this: layout, dtype, shape
├── ConfigError               the config does not fit the problem or the target
└── RenderError               a template asked its kernel for something it does not have
"""

from __future__ import annotations


class TemplateError(Exception):
    """The root: `str()` is one line for a person."""


class UnsupportedProblemError(TemplateError):
    """The problem is outside of what the template computes; says which operand and why."""


class ConfigError(TemplateError):
    """A config that may not be rendered for this problem or target; says which rule it breaks."""


class RenderError(TemplateError):
    """A template used its kernel wrongly: an unknown operand, a size that no argument gives."""

"""Programs that tests start: a missing one skips a test here and fails it in CI.

CI installs every tool that the tests use (`.ci/run`), so that a check which depends on one cannot
disappear there without notice.
"""

from __future__ import annotations

import os
import shutil

import pytest


def in_ci() -> bool:
    """Whether the environment says so, by the variable that CI systems set."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def require_tool(name: str) -> str:
    """Return the path of a program. Skips the test where it is missing; fails it in CI."""
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"the tool {name} is missing: install {name}"
    if in_ci():
        pytest.fail(f"{message} (.ci/run is expected to)", pytrace=False)
    pytest.skip(message)


def needs_tool(*names: str) -> pytest.MarkDecorator:
    """Return a mark which calls `require_tool` before a test's fixtures are set up."""
    return pytest.mark.needs_tool(*names)

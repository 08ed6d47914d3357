"""Which torch versions the hooks know. Read without importing torch."""

from __future__ import annotations

import re

OLDEST, NEWEST = (2, 8), (2, 15)
"""All that the smoke suite has run, and none else: see docs/versions.md."""


def known(version: str) -> bool:
    """Whether the hooks fit the torch `version`, such as `2.13.0+cpu`."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and OLDEST <= (int(match[1]), int(match[2])) <= NEWEST


def range_text() -> str:
    """`2.8 to 2.15`."""
    return " to ".join(".".join(map(str, version)) for version in (OLDEST, NEWEST))

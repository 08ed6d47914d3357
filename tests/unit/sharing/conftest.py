"""A cache dir, and the bundle that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from tests.support.bundle_lab import made


@pytest.fixture
def there(tmp_path: Path) -> Layout:
    return made(tmp_path / "there")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warm.tar.gz"

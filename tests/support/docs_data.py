"""The tables of docs/data that are generated from the code."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.places import ROOT

DATA = ROOT / "docs" / "data"


def assert_written(name: str, rows: Iterable[Sequence[str]], accept: str) -> None:
    """Fail unless the file has exactly these rows; with the variable `accept` set, write them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path: Path = DATA / name
    if os.environ.get(accept):
        path.write_text(text.getvalue(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text.getvalue(), f"{accept}=1 writes it"

"""Where the tests stand: the checkout, and the corpus of real logs beside it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
"""Real logs, caches and tables, beside some checkouts; tests of it are skipped elsewhere."""
TABLES = CORPUS.parent / "tables"
"""Public tuned tables, likewise."""

EVERYTHING = "TEST_EVERYTHING" in os.environ
"""Whether all cases are tried where some stand for the rest: CONTRIBUTING.md says where."""

"""Where the tests stand: the checkout, and the corpus of real logs beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
"""Real logs, caches and tables, beside some checkouts; tests of it are skipped elsewhere."""

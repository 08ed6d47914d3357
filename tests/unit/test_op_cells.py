"""docs/data/ops.csv claims nothing of an op that no test has shown."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.support.docs_data import assert_written
from tests.support.op_cells import ROWS, Row, is_proof, words
from tests.support.places import ROOT


def test_the_docs_have_the_table() -> None:
    """`ACCEPT_OPS=1` writes it."""
    assert_written("ops.csv", words(), "ACCEPT_OPS")


COLLECT = """
import sys
import pytest

class Ids:
    def pytest_collection_finish(self, session):
        for item in session.items:
            if not any(item.get_closest_marker(name) for name in ("skip", "xfail")):
                print("collected:", item.nodeid)

sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]], [Ids()]))
"""


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The ids of the tests that pytest finds in the files of the table, as it would run them."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("most of these files import torch")
    files = {cell.partition("::")[0] for row in ROWS for cell in row.cells if is_proof(cell)}
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *sorted(files)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"^collected: (.*)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_each_yes_has_its_test(row: Row, collected: set[str]) -> None:
    """The test is there and takes this op, and nobody has marked it to be skipped or to fail."""
    proofs = set(filter(is_proof, row.cells))
    # An id without a parameter names the test with all of its parameters.
    names = collected | {name.partition("[")[0] for name in collected}
    assert proofs <= names
    assert proofs or len(set(row.cells)) == 1, "a row without a proof has one reason"

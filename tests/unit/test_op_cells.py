"""docs/jobs.md says of no op what no test has shown."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.support.op_cells import PAGE, ROWS, Row, is_proof, markdown
from tests.support.places import ROOT

_TABLE = re.compile(r"(<!-- ops -->\n).*?(<!-- end of ops -->)", re.DOTALL)


def test_the_page_has_the_table() -> None:
    """`ACCEPT_OPS=1` writes it."""
    page = PAGE.read_text()
    wanted = _TABLE.sub(lambda found: f"{found[1]}{markdown()}{found[2]}", page)
    if os.environ.get("ACCEPT_OPS"):
        PAGE.write_text(wanted)
        page = wanted
    assert markdown() in page and page == wanted


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

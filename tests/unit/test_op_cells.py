"""docs/jobs.md says of no op what no test has shown."""

from __future__ import annotations

import ast
import os
import re

import pytest

from tests.support.op_cells import PAGE, ROWS, Row, is_proof, markdown
from tests.support.places import ROOT

_TABLE = re.compile(r"(<!-- ops -->\n).*?(<!-- end of ops -->)", re.DOTALL)
_ID = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)(?:\[(.+)\])?")


def test_the_page_has_the_table() -> None:
    """`ACCEPT_OPS=1` writes it."""
    page = PAGE.read_text()
    wanted = _TABLE.sub(lambda found: f"{found[1]}{markdown()}{found[2]}", page)
    if os.environ.get("ACCEPT_OPS"):
        PAGE.write_text(wanted)
        page = wanted
    assert markdown() in page and page == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_each_yes_has_its_test(row: Row) -> None:
    """That there is the test, and that it knows a parameter of that name; it is run elsewhere."""
    for cell in filter(is_proof, row.cells):
        found = _ID.fullmatch(cell)
        assert found is not None, cell
        file, test, parameter = found.groups()
        tree = ast.parse((ROOT / file).read_text())
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert test in tests, cell
        assert parameter is None or parameter in texts, cell

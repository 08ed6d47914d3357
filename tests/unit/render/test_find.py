"""docs/watching.md lists the fields of the filter."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from rocm_tui.session.query.fields import FIELDS, QueryField
from rocm_tui.session.query.grammar import parse
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "watching.md"
_FIELDS = re.compile(r"(<!-- fields -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def fields_markdown() -> Iterator[str]:
    """The lines of the table."""
    yield "| field | is | for example | also |"
    yield "|---|---|---|---|"
    for field in FIELDS:
        also = ", ".join(f"`{name}`" for name in field.also)
        yield f"| `{field.name}` | {field.about}{_units(field)} | `{field.example}` | {also} |"


def _units(field: QueryField) -> str:
    units = [name for name in field.units if name]
    return f" ({', '.join(units)})" if units else ""


def test_the_page_has_the_fields_of_the_table() -> None:
    """`ACCEPT_FIND=1` writes them."""
    table = "\n".join(fields_markdown())
    page = PAGE.read_text()
    wanted = _FIELDS.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)
    if os.environ.get("ACCEPT_FIND"):
        PAGE.write_text(wanted)
        page = wanted
    assert table in page and page == wanted


def test_its_examples_can_be_read() -> None:
    section = PAGE.read_text().partition("## Filter, sort, group")[2]
    block = section.split("```")[1]
    examples = [line.partition("   ")[0] for line in block.strip().splitlines()]
    assert len(examples) == 4
    for example in examples:
        parse(example)

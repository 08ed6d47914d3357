"""The fields of a filter as docs/find.md lists them."""

from __future__ import annotations

from collections.abc import Iterator

from rocm_tui.session.query.fields import FIELDS, QueryField


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

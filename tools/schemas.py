"""Write the JSON Schemas of `--json` to docs/schemas, one file a version: python -m tools.schemas.

What a file means is never changed, since programs rely on a version. Who changes a document raises
its version, and runs this again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rocm_tui.cli.schema import documents
from rocm_tui.json_output import Document, json_schema, schema_tag

FOLDER = Path(__file__).parent.parent / "docs" / "schemas"
WORDING = ("title", "description")


def path_of(kind: type[Document]) -> Path:
    """Return the file of a document's schema: `ls-1.json`."""
    _, name, version = schema_tag(kind).split("/")
    return FOLDER / f"{name}-{version}.json"


def text_of(kind: type[Document]) -> str:
    """Return the schema without titles and descriptions; a line a type."""
    schema = without_wording(json_schema(kind))
    types = schema.pop("$defs")
    lines = ",\n".join(f'"{name}": {json.dumps(types[name])}' for name in sorted(types))
    return f'{json.dumps(schema)[:-1]}, "$defs": {{\n{lines}\n}}}}\n'


def without_wording(schema: Any) -> Any:
    """Drop titles and descriptions, but not members of documents that are called so."""
    if isinstance(schema, list):
        return [without_wording(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_wording(item)
        for key, item in schema.items()
        if not (key in WORDING and isinstance(item, str))
    }


def meaning(schema: dict[str, Any]) -> Any:
    """Return the schema with its types in place of their names, which are ours alone."""

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inlined(schema["$defs"][part["$ref"].rpartition("/")[2]])
        return {key: inlined(item) for key, item in part.items()}

    return inlined({"$ref": schema["$ref"]})


def changed(kind: type[Document]) -> bool:
    """Return whether documents differ from what the file of their version says."""
    present, written = meanings(kind)
    return bool(present != written)


def meanings(kind: type[Document]) -> tuple[Any, Any]:
    """Return what documents mean now, and what the file of their version says."""
    present, written = text_of(kind), path_of(kind).read_text()
    return meaning(json.loads(present)), meaning(json.loads(written))


def main() -> int:
    """Write the files that are missing; return 1 if a document has changed within its version."""
    FOLDER.mkdir(exist_ok=True)
    code = 0
    for kind in documents().values():
        path = path_of(kind)
        if path.exists() and changed(kind):
            code = 1
            print(f"{path.name} differs: raise the version of {schema_tag(kind)}")
        else:
            path.write_text(text_of(kind))
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Reads what `--json` prints, and holds it against the committed schema."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.places import ROOT


def document(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the one document in `text`, which has the schema `name` and follows it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    program, schema, version = found["schema"].split("/")
    assert (program, schema) == ("rocm-tui", name)
    committed = ROOT / "docs" / "schemas" / f"{name}-{version}.json"
    Draft202012Validator(json.loads(committed.read_text())).validate(found)
    return found

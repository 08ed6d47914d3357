"""docs/config.md has every setting, as the code has it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rocm_tui.cli.config import to_toml
from rocm_tui.config.settings import SECTIONS, settings
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "config.md"
BEGIN, END = "<!-- settings -->", "<!-- end of settings -->"


def table() -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for one in settings():
        yield f"| `{one.full_name}` | `{to_toml(one.default)}` | {one.description} |"
    yield f"| `keys.ID` | | {SECTIONS['keys']} `rocm-tui config` lists the ids |"


def test_the_page_has_every_setting() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    made = "\n".join((BEGIN, *table(), END))
    if os.environ.get("ACCEPT_SETTINGS"):
        PAGE.write_text(before + made + rest.partition(END)[2])
    assert made in PAGE.read_text()

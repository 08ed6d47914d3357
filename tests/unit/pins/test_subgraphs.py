"""The hash of a subgraph has line breaks, which no other name may have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import CacheUnreadable, PinRefused
from backend.model.choice import Choice, is_hash
from backend.pins.file import read_pin_file
from backend.pins.store import PinStore
from tests.support.pin_lab import KEY, cache_file, make_layout, times
from tests.support.subgraphs import decompose_k

TIMES = {"mm-c1": 1.5, decompose_k(2): 2.25, decompose_k(4): 2.5}
REFUSED = (
    "triton_mm-caa\nb",
    decompose_k(2) + "\nrm -rf /",
    decompose_k(2) + "\n    \x1b[2J",
    decompose_k(2).replace("mm_2", "mm\n2"),
    decompose_k(2).replace("\n", "\r"),
    decompose_k(2).replace("%view", "%\u202eview"),
)


@pytest.mark.parametrize("text", REFUSED)
def test_no_other_name_may_have_line_breaks(text: str) -> None:
    assert is_hash(decompose_k(2)) and is_hash("mm-c1") and not is_hash(text)


@pytest.mark.parametrize("text", REFUSED)
def test_a_choice_of_such_a_name_is_not_pinned(tmp_path: Path, text: str) -> None:
    store = PinStore(make_layout(tmp_path, {"mm": {KEY.inputs: {"highest": {text: 1.0}}}}))
    with pytest.raises(PinRefused, match="not a name"):
        store.pin(None, KEY, text)


def test_a_subgraph_is_pinned_and_unpinned(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, {"mm": {KEY.inputs: {"highest": TIMES}}})
    store, before = PinStore(layout), cache_file(layout).read_bytes()
    report = store.pin(None, KEY, decompose_k(4))
    assert report.status is not None and report.status.state == "active"
    assert min(times(layout), key=times(layout).__getitem__) == decompose_k(4)
    assert [pin.hash for pin in read_pin_file(layout.pins).pins] == [decompose_k(4)]
    assert "\\n    " in layout.pins.read_text(), "as JSON escapes it"
    store.unpin(KEY)
    assert cache_file(layout).read_bytes() == before


def test_a_pin_file_with_another_line_break_is_not_read(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, {"mm": {KEY.inputs: {"highest": TIMES}}})
    PinStore(layout).pin(None, KEY, decompose_k(4))
    document = json.loads(layout.pins.read_text())
    document["pins"][0]["hash"] += "\nrm"
    layout.pins.write_text(json.dumps(document))
    with pytest.raises(CacheUnreadable):
        read_pin_file(layout.pins)


def test_its_label_is_its_name_and_a_digest() -> None:
    labels = [Choice(hash=decompose_k(splits)).label for splits in (2, 4)]
    assert [label.rpartition("-")[0] for label in labels] == [
        "decompose_k_mm_2_split",
        "decompose_k_mm_4_split",
    ]
    assert all(label.isprintable() and len(label) < 40 for label in labels)
    changed = Choice(hash=decompose_k(2).replace("placeholder", "other"))
    assert changed.label != labels[0]
    assert changed.typed == changed.label and Choice(hash="mm-c1").typed == "mm-c1"
    assert replace(changed, name="decompose_k_1").typed == "decompose_k_1"

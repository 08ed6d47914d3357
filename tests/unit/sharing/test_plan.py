"""What is said of machines that differ, before pins of the one are taken to the other."""

from __future__ import annotations

import pytest

from backend.sharing.plan import Difference


@pytest.mark.parametrize(
    ("there", "here", "sentence"),
    [
        ("7.1", "7.2", "hip: 7.1 there, 7.2 here; times may differ"),
        (None, "7.2", "hip: not known there, 7.2 here; times may differ"),
        ("7.1", None, "hip: 7.1 there, not known here; times may differ"),
    ],
)
def test_what_is_not_known_is_said(there: str | None, here: str | None, sentence: str) -> None:
    difference = Difference("hip", there, here, False, "times may differ")
    assert difference.sentence == sentence
    assert difference.known == (there is not None and here is not None)

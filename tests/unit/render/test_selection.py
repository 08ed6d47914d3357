"""Where the choice of a rank is from, in words."""

from __future__ import annotations

import pytest

from backend.model.tuning import Tuning
from rocm_tui.render.detail import selection_text


@pytest.mark.parametrize(
    ("tuning", "text"),
    [
        (Tuning(op="mm", selected_by="pin"), "pinned"),
        (Tuning(op="mm", selected_by="rank", decided=0, rank=3), "taken from rank 0"),
        (Tuning(op="mm", selected_by="rank", decided=0, rank=0), "taken by other ranks"),
        (
            Tuning(op="mm", selected_by="rank", decided=1, rank=0, apart="waited 3 s for rank 1"),
            "taken from rank 1: waited 3 s for rank 1",
        ),
        (
            Tuning(op="mm", selected_by="alone", rank=1, apart="waited 3 s for rank 0"),
            "chosen alone: waited 3 s for rank 0",
        ),
    ],
)
def test_where_a_choice_is_from(tuning: Tuning, text: str) -> None:
    assert selection_text(tuning) == text

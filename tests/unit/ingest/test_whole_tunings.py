"""Tunings that a log tells all at once are what their events, folded one by one, result in."""

from __future__ import annotations

import json

from backend.model.session import Session
from backend.wire.events import WholeTuning, decode_tuning
from rocm_tui.ingest.follow.packing import packed, unpacked
from rocm_tui.ingest.formats.whole_tunings import Whole, tunings
from rocm_tui.ingest.packed import PackedTuning
from rocm_tui.ingest.records import Seen

SESSION = Session("s", host="here", pid=1, started=1.0, rank=3, threads=8)


def told(n: int, offered: list[str], timed: dict[str, float], spent: float | None) -> WholeTuning:
    offers = [
        {"name": name, "hash": f"{name}-x", "ms": None, "description": f"N={n}", "failed": False,
         "reason": None}
        for name in offered
    ]  # fmt: skip
    head = {
        "event": "tuning_started", "n": n, "when": 1.5, "op": "mm", "inputs": "[]",
        "precision": "highest", "shapes": [[n, 2], [2, 4]], "strides": [[2, 1], [4, 1]],
        "dtypes": ["torch.float32", "torch.float32"], "device": "cpu", "choices": offers,
    }  # fmt: skip
    lines: list[dict[str, object]] = [head]
    lines += [
        {"event": "choice_timed", "n": n, "hash": name, "ms": ms} for name, ms in timed.items()
    ]
    end = {
        "event": "choice_selected", "n": n, "when": 2.5, "hash": "a-x", "by": "timing",
        "benchmark_seconds": spent, "precompile_seconds": None,
    }  # fmt: skip
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, end])
    whole = decode_tuning(text, 0)
    assert whole is not None
    return whole


WHOLE = [
    Whole(told(1, ["a", "b"], {"b-x": 0.25, "a-x": 0.125}, 0.5), SESSION, ("log",)),
    Whole(told(2, ["a", "b", "c"], {"c-x": 0.75}, None), SESSION, ("log",)),
    Whole(told(3, ["a"], {"a-x": 0.5, "unknown-x": 0.25}, 0.5), None, ("log",)),
]


def test_each_is_what_its_events_result_in() -> None:
    assert tunings(WHOLE) == [whole.fold().result() for whole in WHOLE]
    assert tunings([]) == []


def test_their_choices_reach_another_process_as_the_columns_they_are() -> None:
    made = tunings(WHOLE)
    seen = [Seen(f"log#{n}", tuning) for n, tuning in enumerate(made)]
    data = packed((list(seen), None))
    assert all(type(tuning) is PackedTuning for tuning in made)
    part = packed((list(seen[1:]), None))  # of which the columns hold more than is sent
    expected = [whole.fold().result() for whole in WHOLE]
    for sent, wanted in ((data, expected), (part, expected[1:])):
        records, _ = unpacked(sent)
        assert [record.tuning for record in records if isinstance(record, Seen)] == wanted

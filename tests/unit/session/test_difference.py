"""What is kept by difference is what counting anew says, whatever came, went or moved."""

from __future__ import annotations

import random
from dataclasses import replace

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import Dropped, Record, Seen
from rocm_tui.session.grouping import DifferingFacets, SourceNames, difference, differing, source_of
from rocm_tui.session.model import Model
from rocm_tui.session.sessions import short_names

ALONE = (Choice("a", "a-0", 1.0),)


def tuning(n: int, draw: random.Random) -> Tuning:
    return Tuning(
        "mm",
        ((n, 8), (8, 8)),
        ((8, 1), draw.choice([(8, 1), (1, 8)])),
        device=draw.choice([None, "cuda", "cuda", "hip"]),
        choices=ALONE * draw.choice([1, 2]),
        num_choices=1,
        rank=draw.choice([None, 0, 1]),
        when=draw.choice([None, 5.0, draw.uniform(0, 10)]),
        sources=(draw.choice(["/a", "/b", "/b/a", "/c/b/a"]),),
    )


def test_between_common_beginning_and_end() -> None:
    a, b, c, d = (object() for _ in range(4))
    assert difference([a, b, c], [a, d, b, c]) == ([], [d])
    assert difference([a, b, c], [a, d, c]) == ([b], [d])
    assert difference([a, a], [a, a, a]) == ([], [a])
    assert difference([], [a, b]) == ([], [a, b]) and difference([a, b], []) == ([a, b], [])
    assert difference([a, b], [b, a]) == ([a, b], [b, a])


def test_rows_that_change_a_few_at_a_time() -> None:
    draw, model = random.Random(7), Model()
    known, sources = DifferingFacets(), SourceNames()
    called: set[tuple[str, ...]] = set()
    held: set[int] = set()
    seen: set[tuple[str, ...]] = set()
    for _ in range(400):
        records: list[Record] = []
        for _ in range(draw.choice([1, 1, 2, 90])):
            n = draw.randrange(draw.choice([1, 3, 40]))
            goes = n in held and draw.random() < 0.6
            records.append(Dropped(f"/s#{n}") if goes else Seen(f"/s#{n}", tuning(n + 1, draw)))
            (held.discard if goes else held.add)(n)
        model.apply(records)
        rows = model.rows()
        assert rows == sorted(rows, key=lambda row: row.age, reverse=True)
        assert len(rows) == len(held)
        assert known.of(rows) == differing(rows)
        names = sources.of(rows)
        assert names == short_names(map(source_of, rows))
        called.add(tuple(sorted(names.values())))
        seen.add(differing(rows))
    assert called >= {(), ("a",), ("/a", "/b/a", "b", "c/b/a")}
    assert () in seen and ("device", "layout", "rank", "source") in seen


def test_a_list_that_was_given_away_is_not_changed() -> None:
    model, draw = Model(), random.Random(1)
    model.apply([Seen(f"/s#{n}", tuning(n, draw)) for n in range(1, 9)])
    before = model.rows()
    kept = list(before)
    changed = replace(before[3].tuning, when=99.0)
    model.apply([Seen(before[3].key, changed)])
    assert before == kept and model.rows()[0].tuning == changed

"""Tunings whose choices are packed are as any other, and stay packed until somebody asks."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.follow.packing import packed, unpacked
from rocm_tui.ingest.packed import Coded, PackedTuning, choice_values, unpack
from rocm_tui.ingest.records import Seen
from rocm_tui.session.grouping import Arrangement, arrange
from rocm_tui.session.model import Model

CHOICES = (Choice("mm", "mm-ext", 0.25), Choice("b", "b-0", 0.5, "A=1"), Choice("c", "c-0"))


def tuning(n: int, choices: tuple[Choice, ...] = CHOICES) -> Tuning:
    return Tuning("mm", ((n, 2), (2, 3)), choices=choices, num_choices=len(choices), when=1.0)


def through(*tunings: Tuning) -> list[Tuning]:
    """As they come out of another process."""
    records = [Seen(f"/a.jsonl#{n}", each) for n, each in enumerate(tunings)]
    again, _ = unpacked(packed((list(records), None)))
    return [record.tuning for record in again if isinstance(record, Seen)]


@pytest.mark.parametrize(
    "use",
    [
        lambda packed, plain: packed.choices == plain.choices,
        lambda packed, plain: packed == plain,
        lambda packed, plain: plain == packed,
        lambda packed, plain: packed == through(plain)[0],
        lambda packed, plain: packed != replace(plain, rank=9),
        lambda packed, plain: hash(packed) == hash(plain),
        lambda packed, plain: repr(packed) == repr(plain),
        lambda packed, plain: replace(packed, rank=1) == replace(plain, rank=1),
        lambda packed, plain: replace(packed, choices=()) == replace(plain, choices=()),
        lambda packed, plain: copy.copy(packed) == plain,
        lambda packed, plain: pickle.loads(pickle.dumps(packed)) == plain,
        lambda packed, plain: packed.problem == plain.problem and packed.id == plain.id,
    ],
)
@pytest.mark.parametrize("choices", [CHOICES, CHOICES[:1], ()])
def test_it_is_as_any_other(
    use: Callable[[Tuning, Tuning], bool], choices: tuple[Choice, ...]
) -> None:
    plain = tuning(1, choices)
    first, last = through(plain, tuning(2, choices))
    assert isinstance(first, PackedTuning)
    assert use(first, plain)
    assert first.choices == choices and type(first) is Tuning
    assert last.choices == choices


def test_times_are_told_of_those_that_count() -> None:
    failed = (*CHOICES, Choice("d", "d-0", failed=True))
    plain, empty = through(tuning(1), tuning(2, ()))
    assert isinstance(plain, PackedTuning) and list(plain.times or ()) == [0.25, 0.5]
    assert isinstance(empty, PackedTuning) and empty.times == ()
    (with_failed,) = through(tuning(4, failed))
    assert isinstance(with_failed, PackedTuning) and with_failed.times == [0.25, 0.5]
    (apart,) = through(tuning(5, (*CHOICES, Choice("e", "e-0", 0.1, offered=False))))
    assert isinstance(apart, PackedTuning) and apart.times is None


def test_rows_ask_for_no_choices() -> None:
    tunings = through(*(tuning(n) for n in range(1, 30)))
    model = Model()
    model.apply([Seen(f"/a.jsonl#{n}", each) for n, each in enumerate(tunings)])
    rows = model.rows()
    assert len(arrange(rows, Arrangement())) == 29
    assert all(isinstance(row.tuning, PackedTuning) for row in rows)
    assert [row.suspect for row in rows] == [None] * 29


def test_seconds_stay_packed_with_the_choices() -> None:
    took = Seconds(benchmark=0.5, precompile=1.5)
    first, last = through(replace(tuning(1), seconds=took), tuning(2))
    assert (first.seconds, last.seconds) == (took, Seconds())
    assert isinstance(first, PackedTuning), "asking for them unpacks nothing"
    assert first.choices == CHOICES and type(first) is Tuning
    assert first.seconds == took


def test_threads_that_ask_at_once_are_all_told() -> None:
    took = Seconds(benchmark=0.5)
    asked = through(*(replace(tuning(n), seconds=took) for n in range(1, 300)))

    def ask(turn: int) -> bool:
        told = [
            (each.seconds, each.choices) if turn % 2 else (each.choices, each.seconds)[::-1]
            for each in asked
        ]
        return all(one == (took, CHOICES) for one in told)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_texts_that_come_again_are_one() -> None:
    first, last = through(
        *(replace(tuning(n), op="".join(["m", "m"]), kernel=f"k{n % 2}") for n in (1, 2))
    )
    assert first.op is last.op
    assert (first.kernel, last.kernel) == ("k1", "k0")


def test_a_row_takes_little() -> None:
    """Bytes of a tuning with five choices, from the packed to the row."""
    count, names = 2000, {f"triton_mm_{n}": 0.01 + 0.005 * n for n in range(5)}
    made = [
        replace(
            tuning(n, tuple(Choice(name, f"{name}-x", ms + n / 1e7) for name, ms in names.items())),
            strides=((2, 1), (3, 1)), inputs_key=f"[('cpu', 'torch.float32', {n}, 2)]",
            precision="highest", session="s", seconds=Seconds(0.1 * n, 0.2 * n),
        )
        for n in range(count)
    ]  # fmt: skip
    data = packed(([Seen(f"/a.jsonl#{n}", each) for n, each in enumerate(made)], None))
    Model().apply(unpacked(data)[0])  # what is loaded first is not counted
    model = Model()
    tracemalloc.start()
    model.apply(unpacked(data)[0])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(model.rows()) == count
    assert taken / count < 1400


def test_choices_of_many_are_the_same_made_at_once() -> None:
    plain = [tuning(n, CHOICES[: n % 4]) for n in range(9)]
    many = through(*plain)
    assert all(type(each) is PackedTuning for each in many)
    unpack(many)
    assert all(type(each) is Tuning for each in many) and many == plain


def test_names_that_come_again_take_a_byte_each() -> None:
    """Of many choices; in the order they had, and where one has none, too."""
    few = tuple(Choice(name, f"{name or ''}-0", 0.25) for name in ("mm", "b", None, "c"))
    plain = [tuning(n, few[n % 3 :]) for n in range(200)]
    again = through(*plain)
    first = again[0]
    assert isinstance(first, PackedTuning) and list(choice_values(first, "name")) == [
        "mm", "b", None, "c",
    ]  # fmt: skip
    columns, _ = first.place
    assert columns is not None and isinstance(columns.told[1][0][1], Coded)
    assert through(*again) == plain
    unpack(again)
    assert again == plain and all(type(each) is Tuning for each in again)

"""The same tuning in several sources is one row; another tuning of the same key is another row."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest

from backend.model.choice import Choice, sort_choices
from backend.model.session import Activity, Fault, Session
from backend.model.tuning import Pin, Seconds, Tuning
from backend.pins.state import PinStatus
from rocm_tui.ingest.records import ActivitySeen, Dropped, Gone, Record, Seen, SessionSeen
from rocm_tui.session.model import Changes, Model, Row
from rocm_tui.session.views import foreign

KEY = "[('cpu', 'torch.float32', 8, 128, 256, 32768, 256, 1, 0), ('cpu', 'torch.float32', 8, 256, 192, 49152, 192, 1, 0)]"  # noqa: E501
SHAPES = ((8, 128, 256), (8, 256, 192))
STRIDES = ((32768, 256, 1), (49152, 192, 1))
DTYPES = ("torch.float32", "torch.float32")
ATEN_HASH, CPP_HASH = "bmm-cd5psz4hpk4", "CppMicroGemmFP32Vec-coyafvqw6ln"


def cache(aten: float | None, cpp: float | None, source: str = "/c/cache/44") -> Tuning:
    """What the persistent cache tells; None is a failed choice."""
    choices = [
        Choice(hash=ATEN_HASH, ms=aten, failed=aten is None),
        Choice(hash=CPP_HASH, ms=cpp, failed=cpp is None),
    ]
    return Tuning(
        "bmm", SHAPES, STRIDES, DTYPES, "cpu", "highest", KEY, sort_choices(choices),
        sources=(source,),
    )  # fmt: skip


def log(aten: float, cpp: float, source: str = "/l/train.log", rank: int | None = None) -> Tuning:
    """What stderr tells: times rounded to four places, names, seconds."""
    choices = [
        Choice(name="bmm", ms=round(aten, 4)),
        Choice(name="cpp_CppMicroGemmFP32Vec_0", ms=round(cpp, 4), description="BLOCK=1"),
    ]
    return Tuning(
        "bmm", SHAPES, STRIDES, DTYPES, choices=sort_choices(choices), num_choices=2,
        seconds=Seconds(benchmark=3.0), rank=rank, sources=(source,),
    )  # fmt: skip


def event(aten: float, cpp: float, when: float, session: str = "s1") -> Tuning:
    """What our own event log tells."""
    choices = [
        Choice(name="bmm", hash=ATEN_HASH, ms=aten),
        Choice(name="cpp_CppMicroGemmFP32Vec_0", hash=CPP_HASH, ms=cpp),
    ]
    return replace(
        cache(aten, cpp), choices=sort_choices(choices), session=session, when=when,
        selected=ATEN_HASH if aten < cpp else CPP_HASH, selected_by="timing",
        sources=("/c/rocm_tui/sessions/a.jsonl",),
    )  # fmt: skip


def rows_of(*records: Record) -> list[Row]:
    model = Model()
    model.apply(records)
    return model.rows()


def pin_status(timings: dict[str, float], state: str = "active") -> PinStatus:
    pin = Pin("bmm", KEY, "highest", CPP_HASH, "cpp", "44", {"highest": timings})
    return PinStatus(pin, state, "")  # type: ignore[arg-type]


A, B = 0.5166999999914879, 1.1475679999932709


def test_log_and_cache_are_one_row_in_any_order() -> None:
    records = [
        Seen("/c/cache/44#1", cache(A, B)),
        Seen("/l/train.log#1", log(A, B)),
        Seen("/c/rocm_tui/sessions/a.jsonl#1", event(A, B, 10.0)),
        Seen("/l/tee.log#1", log(A, B, "/l/tee.log")),
    ]
    for order in permutations(records):
        model = Model()
        for record in order:
            model.apply([record])
        (row,) = model.rows()
        best, second = row.tuning.choices
        assert (best.name, best.hash, best.ms) == ("bmm", ATEN_HASH, A)
        assert (second.name, second.hash, second.ms) == ("cpp_CppMicroGemmFP32Vec_0", CPP_HASH, B)
        assert second.config == {"BLOCK": "1"}
        assert row.tuning.seconds.benchmark == 3.0
        assert len(row.tuning.sources) == 4
        assert row.tuning.key is not None


def test_other_times_are_another_tuning() -> None:
    rows = rows_of(Seen("/c/cache/44#1", cache(A, B)), Seen("/l/train.log#1", log(A + 0.1, B)))
    assert len(rows) == 2
    assert sorted(row.tuning.choices[0].hash is None for row in rows) == [False, True]


def test_equal_after_rounding_but_other_doubles_are_two_tunings() -> None:
    first, second = event(A, B, 10.0), event(A + 1e-7, B + 1e-7, 20.0, "s2")
    rows = rows_of(Seen("/s/a#1", first), Seen("/s/b#1", second), Seen("/c/44#1", cache(A, B)))
    assert len(rows) == 2
    assert [len(row.tuning.sources) for row in rows] == [1, 2]  # newest first


def test_the_same_key_tuned_again_is_the_next_occurrence() -> None:
    rows = rows_of(
        Seen("/s/a#1", event(A, B, 10.0)),
        Seen("/s/a#2", event(B, A, 20.0)),
        Seen("/c/44#1", cache(B, A)),
    )
    assert [(row.id, row.occurrence) for row in rows] == [(rows[0].id, 2), (rows[0].id, 1)]
    assert rows[0].tuning.sources == ("/c/rocm_tui/sessions/a.jsonl", "/c/cache/44")


def test_two_equal_blocks_of_one_log_stay_two() -> None:
    rows = rows_of(Seen("/l/train.log#1", log(A, B)), Seen("/l/train.log#2", log(A, B)))
    assert [row.occurrence for row in rows] == [2, 1]


def test_ranks_are_not_mixed() -> None:
    zero, one = log(A, B, "/l/0", rank=0), log(A, B, "/l/1", rank=1)
    assert len(rows_of(Seen("/l/0#1", zero), Seen("/l/1#1", one))) == 2


def test_an_ambiguous_time_names_nobody() -> None:
    twins = [Choice(hash="Cpp1-x", ms=0.00611), Choice(hash="Cpp2-y", ms=0.00612)]
    known = replace(cache(A, B), choices=(*twins, Choice(hash=ATEN_HASH, ms=0.5)))
    shown = replace(
        log(A, B),
        choices=(Choice(name="cpp_0", ms=0.0061), Choice(name="bmm", ms=0.5)),
    )
    (row,) = rows_of(Seen("/c/44#1", known), Seen("/l/log#1", shown))
    assert [choice.name for choice in row.tuning.choices] == [None, None, "bmm"]


def test_a_cache_hit_is_no_tuning_of_its_own() -> None:
    hit = replace(event(A, B, 30.0, "s2"), choices=(), selected_by="cache", selected=ATEN_HASH)
    (row,) = rows_of(Seen("/s/a#1", event(A, B, 10.0)), Seen("/s/b#1", hit))
    assert row.occurrence == 1
    assert row.tuning.selected_by == "cache"
    assert [choice.ms for choice in row.tuning.choices] == [A, B]


@pytest.mark.parametrize(
    ("others", "times"), [((0, 1, 2), [A, B]), ((2, 1, 0), [A, B]), ((0, 2), [None, None])]
)
def test_a_program_that_timed_nothing_has_the_times_of_the_cache_under_its_key(
    others: tuple[int, ...], times: list[float | None]
) -> None:
    """Another program was offered fewer choices, and another precision has other times."""
    tuned = event(A, B, 10.0)
    fewer = replace(tuned, choices=tuned.choices[:1])
    reuse = replace(event(A, B, 30.0, "s2"), selected_by="cache")
    reuse = replace(reuse, choices=tuple(replace(choice, ms=None) for choice in reuse.choices))
    records = [
        Seen("/s/a#1", fewer),
        Seen("/c/cache/44#1", cache(A, B)),
        Seen("/c/cache/44#2", replace(cache(7.0, 8.0), precision="high")),
    ]
    rows = rows_of(*(records[at] for at in others), Seen("/s/b#1", reuse))
    (row,) = [row for row in rows if row.tuning.session == "s2"]
    assert [choice.ms for choice in row.tuning.choices] == times


def test_a_pinned_tuning_shows_its_measured_times() -> None:
    model = Model()
    model.apply([Seen("/c/44#1", cache(None, B))])
    changes = model.set_pins([pin_status({ATEN_HASH: A, CPP_HASH: B})])
    (row,) = model.rows()
    assert changes.changed == {row.key}
    assert [(c.hash, c.ms, c.failed) for c in row.tuning.choices] == [
        (ATEN_HASH, A, False),
        (CPP_HASH, B, False),
    ]
    assert row.pin_state == "active"
    assert not model.set_pins([pin_status({ATEN_HASH: A, CPP_HASH: B})])
    model.set_pins([])
    assert model.rows()[0].tuning.choices[-1].failed


def test_a_choice_that_failed_before_the_pin_stays_failed() -> None:
    model = Model()
    model.apply([Seen("/c/44#1", cache(None, B))])
    model.set_pins([pin_status({ATEN_HASH: float("inf"), CPP_HASH: B})])
    assert [c.failed for c in model.rows()[0].tuning.choices] == [False, True]


def test_a_pin_is_shown_on_the_tuning_of_its_own_system() -> None:
    model = Model()
    here, there = cache(None, B), cache(None, B, source="/c/cache/55")
    model.apply([Seen("/c/44#1", here), Seen("/c/55#1", there)])
    status = pin_status({ATEN_HASH: A, CPP_HASH: B})
    model.set_pins([status])
    rows = {row.tuning.sources: row for row in model.rows()}
    ours, other = rows[here.sources], rows[there.sources]
    assert ours.pin == status and other.pin is None
    assert other.tuning.choices[-1].failed, "another system's choice failed there"
    second = replace(status, state="drifted", pin=replace(status.pin, system_hash="55"))
    model.set_pins([status, second])
    assert {row.tuning.sources: row.pin_state for row in model.rows()} == {
        here.sources: "active",
        there.sources: "drifted",
    }


def test_only_what_changed_is_reported() -> None:
    model = Model()
    first = model.apply([Seen("/c/44#1", cache(A, B))])
    assert first.order_changed and len(first.changed) == 1
    assert model.apply([Seen("/c/44#1", cache(A, B))]) == Changes()
    other = replace(cache(A, B), op="baddbmm", inputs_key="x")
    assert model.apply([Seen("/c/44#2", other)]).changed == {"/c/44#2"}
    progress = model.apply([Seen("/c/44#1", replace(cache(A, B), timed=1))])
    assert progress.changed == {"/c/44#1"} and not progress.order_changed
    assert [row.tuning.timed for row in model.rows()] == [0, 1], "the order stays, the row is new"


def test_withdrawn_sources_take_their_rows_and_problems_along() -> None:
    model = Model()
    model.apply(
        [
            Seen("/c/44#1", cache(A, B)),
            Seen("/l/log#1", log(A, B)),
            Fault("/l/log", "a header without rows", 3),
        ]
    )
    model.apply([Gone("/l/log")])
    (row,) = model.rows()
    assert row.tuning.choices[0].name is None and not model.problems
    assert model.apply([Dropped("/c/44#1")]).order_changed
    assert model.rows() == []


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_arrival_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    records: list[Record] = []
    for n in range(30):
        a, b = chance.uniform(0.1, 0.9), chance.uniform(0.1, 0.9)
        records.append(Seen(f"/s/a#{n}", event(a, b, float(n))))
        records.append(Seen(f"/l/log#{n}", log(a, b)))
        if n == 29:
            records.append(Seen("/c/44#1", cache(a, b)))
    chance.shuffle(records)
    model = Model()
    for record in records:
        model.apply([record])
    rows = model.rows()
    assert [row.occurrence for row in rows] == list(range(30, 0, -1))
    assert len(rows[0].tuning.sources) == 3
    assert all(len(row.tuning.sources) == 2 for row in rows[1:])


def test_an_mm_log_row_joins_by_the_very_double() -> None:
    told = Tuning("bmm", dims=(8, 128, 192), choices=(Choice(ms=A, description="BLOCK_M=16"),))
    (row,) = rows_of(Seen("/l/mm.json#1", told), Seen("/c/44#1", cache(A, B)))
    assert row.tuning.choices[0].config == {"BLOCK_M": "16"}
    assert row.tuning.choices[0].hash == ATEN_HASH
    near = replace(told, choices=(Choice(ms=A + 1e-9),))
    assert len(rows_of(Seen("/l/mm.json#1", near), Seen("/c/44#1", cache(A, B)))) == 2


@pytest.mark.parametrize(("op", "told"), [("flex_attention", 3), ("convolution", 2)])
def test_a_log_of_the_first_operands_joins_by_the_very_double(op: str, told: int) -> None:
    """PyTorch's flex log has query, key and value of nine inputs; its conv log no bias."""
    shapes = ((2, 8, 64, 32), (2, 8, 64, 16), (2, 8, 64, 8), (2, 8, 64), (4,))
    full = Tuning(op, shapes, choices=(Choice("triton_1", ms=round(A, 4)),), sources=("/l/a.log",))
    log = Tuning(op, shapes[:told], choices=(Choice(ms=A, description="BLOCK_M=16"),))
    (row,) = rows_of(Seen("/l/a.log#1", full), Seen("/l/flex.json#1", log))
    assert row.tuning.shapes == shapes
    assert row.tuning.choices[0].config == {"BLOCK_M": "16"}
    assert row.tuning.choices[0].name == "triton_1"
    other = replace(log, shapes=((4, 8, 64, 32), *shapes[1:told]))
    assert len(rows_of(Seen("/l/a.log#1", full), Seen("/l/flex.json#1", other))) == 2


def test_a_cpu_and_a_gpu_are_two_tunings_also_where_only_names_tell() -> None:
    """Their only common time is rounded to the same four places."""

    def told(name: str, source: str) -> Tuning:
        choices = (Choice(name="mm", ms=0.0123), Choice(name=name, ms=0.0246))
        return Tuning("mm", ((64, 64), (64, 64)), choices=choices, sources=(source,))

    cpu = Seen("/l/cpu.log#1", told("cpp_CppMicroGemmFP32Vec_0", "/l/cpu.log"))
    gpu = Seen("/l/gpu.log#1", told("triton_mm_3", "/l/gpu.log"))
    assert len(rows_of(cpu, gpu)) == 2
    copy = Seen("/l/copy.log#1", told("triton_mm_3", "/l/copy.log"))
    assert len(rows_of(cpu, gpu, copy)) == 2


def test_what_another_program_is_known_to_offer_is_not_in_this_row() -> None:
    """Activations share a key; what nobody is known to have offered stays, apart."""

    def choices(**times: float) -> tuple[Choice, ...]:
        return sort_choices([Choice(hash=f"a-{name}", ms=ms) for name, ms in times.items()])

    relu, gelu = {"r1": 1.0, "r2": 2.0}, {"g1": 3.0, "g2": 4.0}
    told = event(1.0, 2.0, 5.0)
    views = [
        replace(told, choices=choices(**relu), selected="a-r1"),
        replace(told, choices=choices(**gelu), selected="a-g1", when=6.0),
        replace(cache(None, None), choices=choices(**relu, **gelu, x=5.0)),
    ]
    for order in permutations(enumerate(views)):
        model = Model()
        for at, view in order:
            model.apply([Seen(f"{view.sources[0]}#{at}", view)])
        rows = sorted(model.rows(), key=lambda row: row.tuning.when or 0.0)
        assert [[c.hash for c in row.tuning.choices if c.offered] for row in rows] == [
            ["a-r1", "a-r2"],
            ["a-g1", "a-g2"],
        ]
        apart = [c.hash for row in rows for c in row.tuning.choices if not c.offered]
        assert apart == ["a-x"]


def test_only_a_program_is_known_to_have_offered_a_choice() -> None:
    """A cache has the choices of all programs, and tells of none which it offered."""
    own = replace(cache(A, B), session="s")
    other = replace(own.choices[1], offered=False)
    own = replace(own, choices=(own.choices[0], other))
    assert foreign([own, cache(A, B)]) == [frozenset(), frozenset()]
    program = replace(cache(A, B), session="t")
    assert foreign([own, program]) == [frozenset([other.hash]), frozenset()]


def test_a_tuning_of_another_problem_takes_the_place_of_its_row() -> None:
    model = Model()
    before, after = cache(A, B), replace(cache(A, B), shapes=((8, 64, 256), (8, 256, 192)))
    model.apply([Seen("/c/44#1", before), Seen("/c/44#2", replace(before, op="mm"))])
    model.rows()
    changes = model.apply([Seen("/c/44#1", after)])
    assert changes.changed == {"/c/44#1"}
    assert {row.key: row.tuning for row in model.rows()}["/c/44#1"] == after
    assert len(model.rows()) == 2 and model.members(before) == ()
    model.apply([Gone("/c/44")])
    assert model.rows() == [] and model.row("/c/44#1") is None


def test_what_a_source_told_is_known_behind_a_pin_and_without_one() -> None:
    """A row that tells all of what its one source told is kept in its place."""
    model, told = Model(), cache(None, B)
    model.apply([Seen("/c/44#1", told, told.id)], now=7.0)
    (member,) = model.members(told)
    assert (member.uid, member.source, member.tuning) == ("/c/44#1", "/c/44", told)
    assert (member.seq, member.id, member.seen) == (1, told.id, 7.0)
    for pins in ([pin_status({ATEN_HASH: A, CPP_HASH: B})], []):
        model.set_pins(pins)
        assert model.members(told) == (member,)
    model.apply([Seen("/l/a.log#1", log(A, B))])
    assert [one.uid for one in model.members(told)] == ["/c/44#1", "/l/a.log#1"]
    model.apply([Dropped("/l/a.log#1")])
    assert model.members(told) == (member,) and len(model.rows()) == 1


def test_a_log_of_a_session_joins_the_rows_of_that_session_alone() -> None:
    own = replace(log(A, B), session="s1", call="x.bmm")
    (row,) = rows_of(Seen("/s/a#1", event(A, B, 10.0)), Seen("/l/train.log#1", own))
    assert row.tuning.session == "s1" and row.tuning.call == "x.bmm"
    other = replace(own, session="s2", call="x.bmm")
    assert len(rows_of(Seen("/s/a#1", event(A, B, 10.0)), Seen("/l/train.log#1", other))) == 2


def test_calls_that_differ_are_not_named() -> None:
    first, second = (replace(event(A, B, 10.0), call=call) for call in ("x.bmm", "y.bmm"))
    for views, call in (((first, first), "x.bmm"), ((first, second), "")):
        (row,) = rows_of(*(Seen(f"/s/{at}#1", view) for at, view in enumerate(views)))
        assert row.tuning.call == call


def test_a_row_says_how_its_operands_lie_where_strides_are_known() -> None:
    model = Model()
    model.apply(
        [Seen("/l/a.log#1", log(1.0, 2.0)), Seen("/l/b.log#1", replace(log(3.0, 4.0), strides=()))]
    )
    assert sorted(row.layout for row in model.rows()) == ["", "NN"]


def test_a_log_that_is_gone_takes_its_process_with_it() -> None:
    model, session = Model(), Session("run-7-5")
    compiling = Activity("compiling", "compiling", 11.0)
    seen = [ActivitySeen(path, session.id, compiling) for path in ("/a.jsonl", "/a.run.jsonl")]
    model.apply([SessionSeen(session), *seen])
    model.apply([Gone("/a.run.jsonl")])
    (process,) = model.processes.all()
    assert process.logs == ("/a.jsonl",)
    model.apply([Gone("/a.jsonl")])
    assert model.processes.all() == ()


def test_a_session_that_comes_after_the_cache_names_the_device_of_its_rows() -> None:
    """A screen has read the cache when the first program of that system starts."""
    system = "a" * 64
    model = Model()
    fast = replace(
        cache(A, B, f"/c/cache/{system}"), device="cuda", choices=(Choice("bmm", "b", 0.0),)
    )
    model.apply([Seen("/c/44#1", fast)])
    (before,) = model.rows()
    gpu = Session("s1", device="AMD Instinct MI300X", arch="gfx942", system_hash=system)
    changes = model.apply([SessionSeen(gpu)])
    (row,) = model.rows()
    assert (before.device, row.device) == ("cuda", "gfx942") and row.key in changes.changed
    early = Session("s2")  # as each process says it, before it has Inductor
    model.apply([SessionSeen(early)])
    assert not model.apply([SessionSeen(replace(gpu, id="s2"))]), "the same machine again"
    model.apply([SessionSeen(replace(gpu, id="s2", arch="gfx950"))])
    (row,) = model.rows()
    assert row.device == "cuda", "one of two machines tuned it"


def test_only_what_the_same_source_says_again_is_as_old_as_it_was() -> None:
    """The log of another run, under the same name, has other tunings under the same numbers."""
    model = Model()
    for gone, now, expected in (
        (Gone("/l"), 10.0, [(10.0, 1)]),
        (Gone("/l"), 20.0, [(10.0, 1)]),
        (Gone("/l", anew=True), 30.0, [(30.0, 2)]),
    ):
        model.apply([gone, Seen("/l#1", log(A, B, "/l"))], now=now)
        assert [(row.when, row.seq) for row in model.rows()] == expected

"""Compiled graphs by program: shares of tunings, what a profiler saw, ranks, what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.graph import Graph, GraphTimes, Swap, Trial, TrialArm, TuningUse
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import GraphSeen, GraphTold, KernelTime, TrialSeen
from rocm_tui.session.graphs import (
    TOGETHER,
    Graphs,
    GraphScale,
    Share,
    TuningInGraph,
    aten_name,
    call_ms,
    program_name,
    runs_of,
    share_of,
    total_ms,
    tuning_ms,
)
from tests.support.growth import TIMES, is_linear

TUNING = Tuning(
    "mm", inputs_key="[0]", precision="highest",
    choices=(Choice("triton_mm_1", "triton-1", 1.0), Choice("mm", "mm-1", 2.0)),
)  # fmt: skip
KEY = TUNING.key
assert KEY is not None


def use(hash: str | None = "triton-1", count: int = 1, inputs: str = "[0]") -> TuningUse:
    return TuningUse("mm", inputs, "highest", count, hash)


def graph(
    id: str, ms: float | None, *uses: TuningUse, calls: int = 1, key: str | None = None,
    source: str = "/a.jsonl", session: str | None = "s", g: int = 1,
    kernels: tuple[KernelTime, ...] = (),
) -> GraphSeen:  # fmt: skip
    times = GraphTimes(calls, int(ms is not None), ms, "device")
    whole = Graph(id, title=id, key=key, tunings=uses)
    return GraphSeen(source, g, whole, session, times, 5.0, kernels)


def measured(*choices: tuple[str, float, float, float, Verdict]) -> Tuning:
    """Choices by hash, ratio, its interval and verdict; the best one takes a millisecond."""
    found = tuple(
        MeasuredChoice(hash, ratio, ratio, ratio, 0.01, 9, ratio, low, high, verdict)
        for hash, ratio, low, high, verdict in choices
    )
    return replace(TUNING, measured=Measurement("mm", "[0]", "highest", 1.0, found))


def shared(tuning: Tuning, total: float, *parts: tuple[GraphSeen, TuningUse]) -> Share:
    uses = [TuningInGraph(seen, each) for seen, each in parts]
    return share_of(tuning, uses, "train.py", total, lambda _: GraphScale())


def test_a_share_of_a_short_program() -> None:
    seen = graph("aaaaaa1", 4.0, calls=2)
    share = shared(TUNING, 10.0, (seen, use(count=3)))
    assert (share.calls, share.share, share.basis) == (6, 0.6, "once")
    assert [(p.graph, p.count, p.calls, p.share) for p in share.parts] == [("aaaaaa1", 3, 2, 0.75)]
    tiny = graph("aaaaaa1", 0.5)
    fast = replace(TUNING, choices=(Choice("triton_mm_1", "triton-1", 0.25),))
    assert shared(fast, 0.5, (tiny, use())).share == 0.5
    assert shared(fast, 0.0, (graph("aaaaaa1", 0.0), use())).share is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_share_is_unknown_where_a_part_of_it_is(order: int) -> None:
    parts = [(graph("aaaaaa1", 4.0), use()), (graph("bbbbbb2", None, g=2), use())][::order]
    share = shared(TUNING, 4.0, *parts)
    assert (share.share, share.gain, share.at_most, share.calls) == (None, None, None, 2)
    assert {part.graph: part.share for part in share.parts} == {"aaaaaa1": 0.25, "bbbbbb2": None}
    never = (graph("bbbbbb2", None, calls=0, g=2), use())
    assert shared(TUNING, 4.0, parts[0 if order == 1 else 1], never).share == 0.25


def test_a_graph_that_ranks_call_is_one_part() -> None:
    ranks = [graph("aaaaaa1", 4.0, session=str(n), calls=calls) for n, calls in enumerate((1, 3))]
    other = graph("bbbbbb2", 2.0, calls=2)
    share = shared(TUNING, 20.0, (other, use()), *((rank, use(count=2)) for rank in ranks))
    assert [(p.graph, p.count, p.calls, p.share) for p in share.parts] == [
        ("aaaaaa1", 2, 4, 0.5),
        ("bbbbbb2", 1, 2, 0.5),
    ]
    unknown = graph("aaaaaa1", None, session="2", calls=1)
    parts = shared(TUNING, 20.0, *((rank, use()) for rank in (*ranks, unknown))).parts
    assert [(part.calls, part.share) for part in parts] == [(5, None)]


def test_what_is_known_worst_says_how_a_share_is_known() -> None:
    tuning = measured(("triton-1", 1.0, 1.0, 1.0, "faster"))
    seen = graph("aaaaaa1", 4.0)
    assert shared(tuning, 4.0, (seen, use())).basis == "measured"
    assert shared(tuning, 4.0, (seen, use()), (seen, use("mm-1"))).basis == "once"
    kernel = TuningInGraph(seen, use(), 2.0)
    found = share_of(TUNING, [kernel], "train.py", 4.0, lambda _: GraphScale())
    assert (found.basis, found.share) == ("seen", 0.5)


BEST = ("mm-1", 1.0, 1.0, 1.0)
FIRST = ("triton-1", 1.0, 1.0, 1.0, "unclear")


@pytest.mark.parametrize(
    ("tuning", "gain", "most"),
    [
        (TUNING, None, None),
        (measured(("triton-1", 1.0, 1.0, 1.0, "faster")), None, None),
        (measured((*BEST, "faster"), ("cpp-1", 2.0, 1.9, 2.1, "slower")), None, None),
        (measured((*BEST, "faster"), ("triton-1", 1.25, 1.2, 1.6, "slower")), 0.2, 0.375),
        (measured((*BEST, "unclear"), ("triton-1", 1.25, 0.9, 1.6, "unclear")), None, 0.375),
        (measured((*BEST, "tied"), ("triton-1", 1.0, 1.0, 1.1, "tied")), 0.0, 0.0),
        (measured(FIRST, ("mm-1", 1.1, 0.75, 2, "unclear")), None, 0.25),
        (measured(FIRST, ("mm-1", 1.1, 1.05, 2, "unclear")), None, 0.0),
        (measured((*BEST, "unclear"), ("triton-1", 0.9, 0.8, 0.95, "unclear")), None, 0.0),
    ],
)  # fmt: skip
def test_what_another_choice_would_save(
    tuning: Tuning, gain: float | None, most: float | None
) -> None:
    ms = call_ms(tuning, TuningInGraph(graph("aaaaaa1", 1.0), use()))[0]
    share = shared(tuning, ms or 1.0, (graph("aaaaaa1", ms), use()))
    assert share.share == 1.0
    assert share.gain == (None if gain is None else pytest.approx(gain))
    assert share.at_most == (None if most is None else pytest.approx(most))
    assert share.to_gain == (share.at_most if gain is None else share.gain)


def test_nodes_that_call_two_choices_have_no_single_gain() -> None:
    tuning = measured((*BEST, "faster"), ("triton-1", 1.25, 1.2, 1.6, "slower"))
    seen = graph("aaaaaa1", 9.0)
    assert shared(tuning, 9.0, (seen, use()), (seen, use("mm-1"))).at_most is None
    assert shared(tuning, 9.0, (seen, use(None))).share is None


@pytest.mark.parametrize(
    ("ms", "calls", "seen", "alone"),
    [
        (10.0, [(2.0, "seen"), (4.0, "once"), (2.0, "measured")], 1.0, 1.0),
        (10.0, [(2.0, "seen"), (16.0, "once")], 1.0, 0.5),
        (10.0, [(20.0, "seen"), (4.0, "once")], 0.5, 0.0),
        (10.0, [(None, "once"), (5.0, "once")], 1.0, 1.0),
        (None, [(5.0, "once")], 1.0, 0.0),
    ],
)
def test_times_fit_into_their_graph(
    ms: float | None, calls: list[tuple[float | None, str]], seen: float, alone: float
) -> None:
    assert GraphScale.of(ms, calls) == GraphScale(seen, alone)  # type: ignore[arg-type]


def kernels_of(
    uses: tuple[TuningUse, ...], *kernels: KernelTime, by: str = "device"
) -> dict[str, float]:
    seen = graph("aaaaaa1", 9.0, *uses, kernels=kernels)
    times = replace(GraphTimes(1, 1, 9.0), by=by)
    found = tuning_ms(replace(seen, times=times), None)  # type: ignore[arg-type]
    return {key.inputs: ms for key, ms in found.items()}


CPU = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"
TEMPLATE, CALL = KernelTime("triton_tem_fused_mm_0", 1, 2.0), KernelTime("nvjet", 1, 3.0, "mm", 1)


def test_kernels_without_a_text() -> None:
    triton, aten = use(), use("mm-1", inputs="[1]")
    assert kernels_of((triton, aten), TEMPLATE, CALL) == {"[0]": 2.0, "[1]": 3.0}
    assert kernels_of((triton, replace(aten, hash=None)), TEMPLATE, CALL) == {}
    assert kernels_of((triton, use("triton-2", inputs="[1]")), TEMPLATE) == {}
    other = KernelTime("triton_poi_fused_0", 1, 2.0)
    assert kernels_of((triton, aten), other, replace(CALL, op="addmm")) == {}
    assert kernels_of((use("bias_addmm-1"),), replace(CALL, op="addmm")) == {"[0]": 3.0}
    assert kernels_of((triton,), TEMPLATE, TEMPLATE) == {"[0]": 4.0}
    assert kernels_of((), TEMPLATE) == kernels_of((triton,)) == {}


def test_the_host_sees_kernels_of_a_cpu_alone() -> None:
    assert kernels_of((use("mm-1", inputs=CPU),), CALL, by="host") == {CPU: 3.0}
    assert kernels_of((use("mm-1"),), CALL, by="host") == {}


def test_what_a_wrapper_calls() -> None:
    assert aten_name("bias_addmm") == aten_name("addmm.out") == "addmm"


def test_all_calls_of_graphs_that_were_timed() -> None:
    seen = [graph("aaaaaa1", 4.0, calls=3), graph("bbbbbb2", None), graph("cccccc3", 1.0)]
    assert total_ms([*seen, replace(seen[0], times=None)]) == 13.0


SESSION = Session("s", pid=7, argv=("python", "/x/train.py"), started=3.0)


def collected(*seen: GraphSeen, sessions: dict[str, Session] | None = None) -> Graphs:
    graphs = Graphs({"s": SESSION} if sessions is None else sessions)
    for each in seen:
        graphs.add(each)
    graphs.touched()
    return graphs


def told(graphs: Graphs) -> list[list[tuple[str, str]]]:
    """The id and the title of each graph, by program."""
    graphs.touched()
    return [[(s.graph.id, s.graph.title) for s in p.graphs] for p in graphs.programs()]


def test_a_program_has_its_longest_graph_first() -> None:
    seen = [graph("aaaaaa1", 1.0), graph("bbbbbb2", 4.0, g=2), graph("cccccc3", None, g=3)]
    (program,) = collected(*seen).programs()
    assert [each.graph.id for each in program.graphs] == ["bbbbbb2", "aaaaaa1", "cccccc3"]
    assert (program.name, program.total, program.latest) == ("train.py pid 7", 5.0, 5.0)
    assert [program.share(each) for each in program.graphs] == [0.8, 0.2, None]
    late = {"s": replace(SESSION, started=9.0)}
    assert collected(*seen, sessions=late).programs()[0].latest == 9.0
    (nothing,) = collected(graph("aaaaaa1", 0.0)).programs()
    assert nothing.share(nothing.graphs[0]) is None


def test_a_trace_takes_the_names_of_a_log_whichever_is_read_first() -> None:
    trace = graph("aaaaaa1", 1.0, key="fk", source="/t.json", session=None)
    log = graph("bbbbbb2", 1.0, use(), key="fk")
    named = [[("bbbbbb2", "bbbbbb2")]] * 2
    for order in ((trace, log), (log, trace)):
        graphs = collected(order[0])
        assert len(told(graphs)) == 1
        graphs.add(order[1])
        assert told(graphs) == named
    text = GraphTold("fk", (use(inputs="[1]"),))
    graphs = collected(trace)
    graphs.add_text(text)
    assert graphs.touched() == {("mm", "[1]")} and graphs.held
    graphs.add_text(text)
    assert not graphs.unjoined, "it says the same"
    assert graphs.profiled == ("fk",)


def test_what_a_source_said_is_forgotten_with_it() -> None:
    kept, gone = graph("aaaaaa1", 1.0, source="/a"), graph("bbbbbb2", 2.0, use(), source="/b")
    graphs = collected(kept, gone)
    graphs.forget("/b")
    assert graphs.touched() == {("mm", "[0]")}
    assert told(graphs) == [[("aaaaaa1", "aaaaaa1")]]
    graphs.forget("/a")
    assert told(graphs) == [] and graphs.held, "a row may still show it"
    trace = collected(graph("aaaaaa1", 1.0, key="fk", source="/t.json", session=None))
    trace.forget("/other.json")
    assert trace.profiled == ("fk",)
    trace.forget("/t.json")
    assert trace.profiled == ()


def test_trials_of_a_graph_are_latest_first_and_the_latest_is_that_of_a_tuning() -> None:
    arms = TrialArm(()), TrialArm((Swap("mm", "[0]", "highest", "mm-1"),))
    trials = [Trial("aaaaaa1", when, arms) for when in (2.0, 3.0, 1.0)]
    graphs = collected(graph("aaaaaa1", 1.0, use()))
    for at, trial in enumerate([*trials, trials[0]]):
        graphs.add_trial(TrialSeen(f"/{at}", trial))
    assert graphs.touched() == {("mm", "[0]")}
    assert [trial.when for trial in graphs.trials("aaaaaa1")] == [3.0, 2.0, 1.0]
    assert graphs.trials("bbbbbb2") == ()

    def tried() -> float | None:
        (share,) = graphs.shares([(TUNING, ("s",))])
        assert share is not None
        return share.tried.when if share.tried else None

    assert tried() == 3.0
    graphs.forget("/1")
    assert tried() == 2.0 and [t.when for t in graphs.trials("aaaaaa1")] == [2.0, 1.0]
    for source in ("/0", "/2", "/3"):
        graphs.forget(source)
    assert tried() is None


def test_a_copy_of_a_log_calls_nothing_twice() -> None:
    """A cache dir and its backup below one folder: the process called its graph once."""
    log = graph("aaaaaa1", 4.0, use(), calls=2, source="/a.jsonl")
    copy = graph("aaaaaa1", 2.0, use(), calls=1, source="/b/a.jsonl")
    other = graph("aaaaaa1", 4.0, use(), calls=5, session="t", source="/c.jsonl")
    for records in ((log, copy), (copy, log)):
        graphs = collected(*records)
        (share,) = graphs.shares([(TUNING, ("s",))])
        assert share is not None and share.calls == 2
        graphs.forget("/a.jsonl")
        graphs.touched()
        (share,) = graphs.shares([(TUNING, ("s",))])
        assert share is not None and share.calls == 1
        graphs.add(other)
        assert sorted(len(program.graphs) for program in graphs.programs()) == [1, 1]


def test_a_trial_is_indexed_alone_however_many_there_are() -> None:
    arms = TrialArm(()), *(TrialArm((Swap("mm", f"[{n}]", "highest", "m"),)) for n in range(8))
    trials = [TrialSeen(f"/{n}", Trial("aaaaaa1", float(n), arms)) for n in range(50 * TIMES)]

    def work(count: int) -> None:
        graphs = Graphs({})
        for seen in trials[:count]:
            graphs.add_trial(seen)

    assert is_linear(work, 50)


@pytest.mark.parametrize(
    ("sources", "system", "counts"),
    [
        (("/c/cache/aa",), "aa", True),
        (("/c/cache/aa",), "bb", False),
        (("/c/cache/aa",), None, True),
        (("/l/a.log",), "bb", True),
    ],
)
def test_a_tuning_has_no_share_of_a_program_on_another_system(
    sources: tuple[str, ...], system: str | None, counts: bool
) -> None:
    sessions = {"s": replace(SESSION, system_hash=system)}
    graphs = collected(graph("aaaaaa1", 4.0, use()), sessions=sessions)
    (share,) = graphs.shares([(replace(TUNING, sources=sources), ())])
    assert (share is not None) is counts


def test_a_call_counts_for_the_latest_tuning_of_its_program_alone() -> None:
    graphs = collected(graph("aaaaaa1", 4.0, use()))
    earlier, later = graphs.shares([(TUNING, ("s",)), (replace(TUNING, when=9.0), ("s",))])
    assert earlier is None and later is not None and later.calls == 1
    other = replace(TUNING, inputs_key="[1]")
    assert graphs.shares([(other, ("s",)), (replace(other, precision=None), ())]) == [None, None]
    assert graphs.shares([(TUNING, ("t",))])[0] is not None, "the tuning of a program without any"
    elsewhere = collected(graph("aaaaaa1", 4.0, use()), graph("bbbbbb2", 2.0, use(), session="t"))
    first, second = elsewhere.shares([(TUNING, ("s",)), (TUNING, ("t",))])
    assert first and second and (first.program, second.program) == ("train.py pid 7", "t")


def test_a_graph_that_was_never_called_counts_for_no_tuning() -> None:
    graphs = collected(graph("aaaaaa1", None, use(), calls=0))
    assert graphs.shares([(TUNING, ("s",))]) == [None]


def test_rows_are_joined_anew_only_while_their_times_change() -> None:
    graphs = collected(graph("aaaaaa1", 0.5, use()))
    graphs.shares([(TUNING, ("s",))])
    assert graphs.unjoined, "a millisecond does not fit into half of one"
    graphs.touched()
    graphs.shares([(TUNING, ("s",))])
    assert not graphs.unjoined


@pytest.mark.parametrize(
    ("argv", "ranks", "name"),
    [
        (("python", "-u", "/x/train.py", "data.py"), 1, "train.py pid 7"),
        (("python", "/x/train.py"), 2, "train.py (2 ranks)"),
        (("/opt/bin/vllm", "serve"), 1, "vllm pid 7"),
        ((), 1, "program pid 7"),
    ],
)
def test_the_name_of_a_program(argv: tuple[str, ...], ranks: int, name: str) -> None:
    assert program_name("s", {"s": replace(SESSION, argv=argv)}, ranks) == name
    assert program_name("/runs/trace.json", {}) == "trace.json"


def test_ranks_that_start_together_are_one_run() -> None:
    sessions = {
        name: Session(name, rank=rank, argv=argv, started=started)
        for name, rank, argv, started in (
            ("a0", 0, ("x",), 100.0),
            ("a1", 1, ("x",), 100.0 + TOGETHER),
            ("a2", 2, ("x",), 101.0 + TOGETHER),
            ("b0", 0, ("x",), 102.0 + TOGETHER),
            ("b2", 2, ("x",), 103.0 + TOGETHER),
            ("c0", 0, ("y",), 100.0),
            ("d", None, ("x",), 100.0),
        )
    }
    runs = {tuple(sorted(run)) for run in runs_of([*sessions, "/t.json"], sessions)}
    assert runs == {("a0", "a1"), ("a2", "b0"), ("b2",), ("c0",), ("d",), ("/t.json",)}

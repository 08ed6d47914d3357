"""VaryingWords whose lines stand between each other's are told apart by any prefix."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.model.tuning import Tuning
from rocm_tui.ingest.formats.processes import (
    HeardWords,
    Origin,
    Origins,
    VaryingWords,
    name_of,
    rank_of,
)
from tests.support.growth import is_linear
from tests.support.log_lab import BMM, MM, read
from tests.support.wrapped_logs import PLAIN, WRAPPED, Wrap, wrapped

OTHER = MM.replace("0.0100", "0.0110").replace("0.0200 ms 50.0%", "0.0400 ms 27.5%")
"""The same problem, timed by another process."""
DISTINCT = {
    "vllm chain": ("(EngineCore_DP0 pid=9) (Worker_TP0 pid=11) ", "Worker_TP1 pid=12"),
    "vllm": ("(VllmWorker rank=0 pid=11) ", "rank=1 pid=12"),
    "ray": ("(RayTrainWorker pid=11, ip=10.0.0.1) ", "pid=12, ip=10.0.0.2"),
    "ray hosts": ("(W pid=11, ip=10.10.20.30) ", "ip=10.10.20.31"),
    "compose": ("trainer-0  | ", "trainer-1"),
    "kubectl": ("[pod/t-0/main] ", "t-1/main"),
    "stern": ("t-7f9c4-abcde main ", "t-7f9c4-fghij"),
    "pdsh": ("node0: ", "node1"),
    "sagemaker": ("[1,mpirank:0,algo-1]<stderr>:", "mpirank:1,algo-1"),
    "openmpi 5": ("[prterun-n1-4711@1,0]<stderr>: ", "@1,1]"),
    "openmpi 4": ("[1,0]<stderr>:", "[1,1]"),
    "torchx": ("trainer/0 ", "trainer/1"),
    "torchrun": ("[default0]:", "default1"),
    "primus": ("[20261102 10:11:12][rank-0/8][INFO ] ", "rank-1/8"),
    "monarch": ("[actor=trainer<{'gpus': 0/2}>] ", "1/2"),
    "sglang": ("[2026-11-02 10:11:12 TP0] ", "TP1"),
    "srun": ("0: ", "1: "),
    "accelerate": ("[RANK 0] ", "RANK 1"),
    "hosts of aws": ("ip-10-10-20-30 ", "10-10-20-31"),
    "an unknown one": ("worker<blue> >> ", "green"),
    "a sign alone": ("+ ", "* "),
    "json": ('{"pod": "t-0", "ts": "2026-11-02T10:11:12Z", "msg": "', "t-1"),
}


def second(name: str) -> tuple[str, str]:
    """Both prefixes; the second differs from the first in one place."""
    first, changed = DISTINCT[name]
    words = {
        "vllm chain": "Worker_TP0 pid=11",
        "vllm": "rank=0 pid=11",
        "ray": "pid=11, ip=10.0.0.1",
        "ray hosts": "ip=10.10.20.30",
        "stern": "t-7f9c4-abcde",
        "kubectl": "t-0/main",
        "sagemaker": "mpirank:0,algo-1",
        "openmpi 5": "@1,0]",
        "openmpi 4": "[1,0]",
        "primus": "rank-0/8",
        "monarch": "0/2",
        "srun": "0: ",
        "accelerate": "RANK 0",
        "hosts of aws": "10-10-20-30",
        "an unknown one": "blue",
        "a sign alone": "+ ",
    }
    old = words.get(name) or changed.replace("1", "0")
    assert old in first
    return first, first.replace(old, changed)


def lines_of(prefix: str, text: str) -> list[str]:
    end = '"}' if prefix.startswith("{") else ""
    return [f"{prefix}{line}{end}" for line in text.splitlines()]


def mixed(*logs: list[str], seed: int = 0) -> str:
    """The lines of all, each log in its order."""
    draw, left = random.Random(seed), [list(log) for log in logs]
    lines: list[str] = []
    while any(left):
        log = draw.choice([log for log in left if log]) if seed else max(left, key=len)
        lines.append(log.pop(0))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", DISTINCT)
def test_two_processes_are_never_mixed_and_never_lost(name: str, seed: int) -> None:
    first, other = second(name)
    logs = (lines_of(first, MM + BMM + MM), lines_of(other, OTHER + BMM + OTHER))
    result = read(mixed(*logs, seed=seed))
    assert not result.problems
    alone = [*read(MM + BMM + MM).tunings, *read(OTHER + BMM + OTHER).tunings]
    assert said(result.tunings) == said(alone)


def said(tunings: list[Tuning]) -> list[str]:
    """What tunings say, whoever says it and in whatever order."""
    return sorted(repr(replace(tuning, rank=None, when=None, process="")) for tuning in tunings)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_two_processes_behind_prefixes_inside_of_any_wrapper(wrap: Wrap, seed: int) -> None:
    """The words that vary in a wrapper are learned while two processes write."""
    logs = (lines_of("worker-a| ", MM + BMM), lines_of("worker-b| ", OTHER + BMM))
    plain = mixed(*logs, seed=seed).splitlines()
    result = read("".join(f"{wrap(line, n)}\n" for n, line in enumerate(plain)))
    assert not result.problems
    assert said(result.tunings) == said([*read(MM + BMM).tunings, *read(OTHER + BMM).tunings])


@pytest.mark.parametrize("end", ["", "Memory access fault by GPU node-2 on address 0x7f00"])
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_the_only_table_is_read_though_it_has_no_end(wrap: Wrap, end: str) -> None:
    """Words that are new on each line cannot be those of processes that wrote a line each."""
    log = [*PLAIN[:7], *filter(None, [end])]
    result, plain = read(wrapped(wrap, log)), read("\n".join(log) + "\n")
    assert said(result.tunings) == said(plain.tunings)
    begins = [[p.what.partition(":")[0] for p in each.problems] for each in (result, plain)]
    assert begins[0] == begins[1]


def test_a_random_id_may_look_like_a_time() -> None:
    ids = ["f8ec606d96", "4bed8a02fc", "bb12986755", "1761325841", "0cde7e2fd0", "b884b16d89"]
    pairs = list(zip(ids, MM.splitlines(), strict=True))
    result = read("".join(f"[{id_}] [a-{n}] {line}\n" for id_, line in pairs for n in range(2)))
    assert not result.problems
    assert said(result.tunings) == said(read(MM).tunings * 2)
    assert {tuning.process for tuning in result.tunings} == {"a-0", "a-1"}


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_process_whose_header_is_missing_is_not_mixed_into_another(cut: int) -> None:
    """Its lines are no table's, though they would fit the other's by their numbers."""
    log = mixed(lines_of("web-0 | ", MM), lines_of("web-1 | ", MM)[cut:])
    for text in (log, mixed(lines_of("web-0 | ", MM), lines_of("web-1 | ", OTHER)[cut:], seed=3)):
        (tuning,) = read(text).tunings
        assert tuning.choices == read(MM).tunings[0].choices
        assert tuning.seconds == read(MM).tunings[0].seconds


def test_processes_have_names_where_they_write_at_the_same_time() -> None:
    """Otherwise their prefixes may be those of one process: the number of its graph, a step."""
    one, two = lines_of("web-0 | ", MM + BMM), lines_of("web-1 | ", BMM + OTHER)
    one_after_another = read("\n".join([*one, *two]) + "\n").tunings
    assert {t.process for t in one_after_another} == {""}
    half = len(two) // 2
    later = read("\n".join([*one[:6], *two[:half], *mixed(one[6:], two[half:]).splitlines()]))
    assert sorted((t.op, t.process) for t in later.tunings) == [
        ("bmm", "web-0"),
        ("bmm", "web-1"),
        ("mm", "web-0"),
        ("mm", "web-1"),
    ]
    graphs = "".join(f"[{n}/0] {line}\n" for n in range(3) for line in (MM + BMM).splitlines())
    assert {t.process for t in read(graphs).tunings} == {""}


def test_a_table_goes_on_at_another_line_of_the_program() -> None:
    """The words change once within each table, and no process has them."""
    lines = (MM + BMM + OTHER).splitlines()
    at = ["x.py:526] " if "AUTOTUNE mm" in line or "AUTOTUNE bmm" in line else "x.py:530] "
            for line in lines]  # fmt: skip
    result = read("".join(f"{a}{line}\n" for a, line in zip(at, lines, strict=True)))
    assert not result.problems
    assert said(result.tunings) == said(read(MM + BMM + OTHER).tunings)


def test_words_that_vary_within_a_process_are_learned() -> None:
    varying = VaryingWords()
    one, two = (Origins().of(f"[x.py:{n}] a-1 (0) ") for n in (526, 530))
    assert varying.key(one) != varying.key(two)
    places = one.differing(two)
    assert places is not None
    varying.vary(one, places)
    assert varying.key(one) == varying.key(two)
    assert varying.key(one) != varying.key(Origins().of("[x.py:526] a-2 (0) "))


def heard(*wrappers: str) -> tuple[HeardWords, list[Origin]]:
    words, origins = HeardWords(), Origins()
    lines = [origins.of(wrapper) for wrapper in wrappers]
    for line in lines:
        words.hear(line)
    return words, lines


def test_numbers_that_never_fall() -> None:
    words, (*_, last) = heard("[a 1.5] 9 ", "[a 1.5] 8 ", "[a 10.25] 9 ", "[b 11.0] 10 ")
    assert (words.rising(last, 3), words.rising(last, 4)) == ({1}, frozenset())
    words.hear(Origins().of("[a x] 11 "))
    assert words.rising(last, 1) == frozenset()


def test_a_word_that_two_lines_have_may_be_a_name() -> None:
    """Behind other words that vary, but not behind another name."""
    words, (first, *_) = heard("[1f] a-7 ", "[2e] a-7 ", "[1f] b-7 ")
    assert words.again(first, 1, frozenset({0, 1}))
    assert not words.again(first, 0, frozenset({0}))
    assert words.again(first, 0, frozenset({0, 1}))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2026-11-02T10:11:12.123Z ", "2026-12-03T01:02:03.456Z "),
        ("2026/11/02 10:11:12 ", "2026/11/03 10:11:13 "),
        ("1793617872.123 ", "1793617999 "),
        ("20261102 10:11:12 a ", "20261103 10:11:13 a "),
        ("[10:11:12,123] ", "[10:11:13,5] "),
        ("2026-11-02 10:11:12+00:00 ", "2026-11-02 10:12:12+00:00 "),
        ("02/11/2026 10:11:12 ", "03/11/2026 10:11:12 "),
    ],
)
def test_times_name_no_process(before: str, after: str) -> None:
    assert Origins().of(before) == Origins().of(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("node-1-2-3 ", "node-1-2-4 "),
        ("10.10.20.30 ", "10.10.20.31 "),
        ("ip-10-10-20-30: ", "ip-10-10-21-30: "),
        ("step 4711.0 ", "step 4711.1 "),
        ("a:b:00:11:22 ", "a:b:00:11:23 "),
        ("job-20261102 ", "job-20261103 "),
    ],
)
def test_names_are_no_times(before: str, after: str) -> None:
    assert Origins().of(before) != Origins().of(after)


@pytest.mark.parametrize(
    ("wrapper", "rank"),
    [
        ("(VllmWorker rank=1 pid=12) ", 1),
        ("(Worker_TP3 pid=12) ", 3),
        ("(Worker_TP0 pid=11) ", 0),
        ("(EngineCore_DP0 pid=9) (Worker_TP1 pid=11) ", 1),
        ("(EngineCore_DP1 pid=9) (Worker_TP0 pid=11) ", None),
        ("(EngineCore_DP1 pid=9) (Worker_TP1 pid=11) ", None),
        ("(Worker_TP1_EP1 pid=889) ", 1),
        ("[2026-11-02 10:11:12 DP2] ", 2),
        ("(Worker_PP1_TP0 pid=3) ", None),
        ("[20261102 10:11:12][rank-5/8][INFO ] ", 5),
        ("[1,mpirank:7,algo-1]<stderr>:", 7),
        ("[prterun-n1-4711@1,6]<stderr>: ", 6),
        ("[1,3]<stderr>:", 3),
        ('{"level": "info", "rank": 4, "msg": "', 4),
        ("local_rank=1 rank=9 ", 9),
        ("local_rank=1 ", None),
        ("node_rank: 2 ", None),
        ("[RANK 2] ", 2),
        ("12: ", 12),
        ("[rank0]:", 0),
        ("frank 3 ", None),
        ("trainer-1 | ", None),
        ("(RayWorker pid=12) ", None),
    ],
)
def test_the_rank_is_read_where_the_prefix_names_it(wrapper: str, rank: int | None) -> None:
    assert rank_of(wrapper) == rank


PROBLEMS = (
    ("mm(64x32, 32x16)", "[32, 1], [16, 1]"),
    ("mm(64x32, 32x32)", "[32, 1], [32, 1]"),
    ("bmm(8x128x256, 8x256x192)", "[32768, 256, 1], [49152, 192, 1]"),
)
TYPES = ("float32", "float16", "bfloat16", "float64")
"""Of the processes, in order."""
SURE = ("hex", "count", "own count", "time", "thread")
"""Words that vary so that each table shows it, or within no table."""
UNSURE = ("slow", "slower", "place")
"""Words that vary seldom, or that the lines of a kind have in common."""


def table(draw: random.Random, process: int, number: int) -> list[tuple[str, str]]:
    """The lines of a table, each with its kind; all but two tell which table it is."""
    (problem, strides), size = draw.choice(PROBLEMS), draw.randint(1, 5)
    best = ms = draw.choice((0.01, 0.0123, 0.3))
    dtypes = f"torch.{TYPES[process]}, torch.{TYPES[process]}"
    lines = [("header", f"AUTOTUNE {problem}"), ("operands", f"strides: {strides}")]
    lines.append(("operands", f"dtypes: {dtypes}"))
    for name in draw.sample(range(9), size):
        share = 100 * best / round(ms, 4)
        row = f"  triton_mm_{name} {ms:.4f} ms {share:.1f}% BLOCK_M=16, TABLE={number}"
        lines.append(("row", row))
        ms *= draw.choice((1, 1.5, 2))
    took = f"takes {number}.5 seconds and 0.2500 seconds precompiling for {size} choices"
    return [*lines, ("footer", f"SingleProcess AUTOTUNE benchmarking {took}")]


def prefixes(draw: random.Random, processes: int, noises: list[str]) -> list[Prefix]:
    """Prefixes of any words and signs that differ in one word; others vary as `noises` say."""

    def word() -> str:
        return "".join(draw.choices("abcdefghij0123456789", k=draw.randint(1, 6)))

    signs = [draw.choice(SIGNS) for _ in range(2 + len(noises))]
    words = [word() for _ in signs]
    name_at, *noises_at = draw.sample(range(len(signs)), 1 + len(noises))
    names: dict[str, None] = {}
    while len(names) < processes:
        names[word()] = None

    def prefix_of(name: str) -> Prefix:
        places = {kind: draw.randint(10, 99) for kind in ("header", "operands", "row", "footer")}
        threads, own = [str(draw.randint(100, 999)) for _ in range(2)], count(1)

        def prefix(n: int, kind: str) -> str:
            if kind == "header":
                draw.shuffle(threads)
            varying = {
                "hex": f"{draw.getrandbits(40):010x}",
                "count": str(1000 + n),
                "own count": str(next(own)),
                "time": f"[10:11:{n % 60:02}]",
                "thread": threads[0],
                "slow": str(500 + n // 7),
                "slower": str(n // 20),
                "place": str(places[kind]),
            }
            at_place = {at: varying[noise] for at, noise in zip(noises_at, noises, strict=True)}
            at_place[name_at] = name
            return "".join(at_place.get(at, words[at]) + sign for at, sign in enumerate(signs))

        return prefix

    return [prefix_of(name) for name in names]


Prefix = Callable[[int, str], str]
SIGNS = (" ", "-", "/", ":", "| ", "] [", ", ", "=", "@", "> ")


class Interleaved:
    """A log of 2 to 4 processes; `process_of` has the process of each table, `rows` counts those of
    each table that are in the log. `cut` logs lack the first or last lines of some processes."""

    def __init__(self, draw: random.Random, noises: list[str], cut: bool) -> None:
        processes = draw.randint(2, 4)
        self.process_of: dict[int, int] = {}
        left = []
        for process, prefix in enumerate(prefixes(draw, processes, noises)):
            log: list[tuple[str, str]] = []
            for _ in range(draw.randint(1, 3)):
                number = len(self.process_of) + 1
                self.process_of[number] = process
                log += table(draw, process, number)
            if cut and draw.random() < 0.2:
                del log[: draw.randint(1, 4)]
            if cut and draw.random() < 0.2:
                del log[-draw.randint(1, 4) :]
            left.append((prefix, log))
        texts = [text for _, log in left for kind, text in log if kind == "row"]
        self.rows = Counter(map(table_of, texts))
        self.lines: list[str] = []
        burst = draw.choice((1, 3, 8))
        while left := [each for each in left if each[1]]:
            prefix, log = draw.choice(left)
            for _ in range(draw.randint(1, min(burst, len(log)))):
                kind, text = log.pop(0)
                self.lines.append(f"{prefix(len(self.lines), kind)}: {text}")


def table_of(row: str) -> int:
    return int(row.rpartition("TABLE=")[2])


@pytest.mark.parametrize("cut", [False, True])
@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=True))
def test_no_row_is_mixed_or_lost_in_silence(cut: bool, draw: random.Random) -> None:
    """Whatever the prefixes are, and whatever in them varies."""
    noises = draw.sample((*SURE, *UNSURE), draw.randint(0, 2))
    log = Interleaved(draw, noises, cut)
    text = "\n".join(log.lines) + "\n"
    result = read(text)
    shown: Counter[int] = Counter()
    for tuning in result.tunings:
        tables = {table_of(choice.description) for choice in tuning.choices if choice.description}
        shown.update(table_of(choice.description) for choice in tuning.choices)
        if tuning.seconds.benchmark is not None:
            tables.add(int(tuning.seconds.benchmark))
        assert len(tables) == 1, text
        processes = {log.process_of[each] for each in tables}
        processes.update(TYPES.index(dtype.removeprefix("torch.")) for dtype in tuning.dtypes)
        assert len(processes) == 1, text
    if not cut and set(noises) <= {*SURE}:
        assert not result.problems, text
    assert shown == log.rows or result.problems, text


LOST_HEADER = """\
7937= 66| b> AUTOTUNE mm(64x32, 32x32)
1e8c= 69| c> AUTOTUNE bmm(8x128x256, 8x256x192)
d588= 24| a> AUTOTUNE bmm(8x128x256, 8x256x192)
c67e= 35| a> strides: [32768, 256, 1], [49152, 192, 1]
733d= 92| c> strides: [32768, 256, 1], [49152, 192, 1]
bdc5= 27| a>   triton_mm_2 0.0100 ms 100.0% BLOCK_M=16, TABLE=4
412f= 27| a>   triton_mm_0 0.0100 ms 100.0% BLOCK_M=16, TABLE=4
ab54= 90| a> AUTOTUNE takes 4.5 seconds and 0.2500 seconds precompiling for 2 choices
9b65= 28| b>   triton_mm_0 0.6000 ms 50.0% BLOCK_M=16, TABLE=8
a28c= 24| a> AUTOTUNE mm(64x32, 32x32)
38d0= 35| a> strides: [32, 1], [32, 1]
6198= 88| c>   triton_mm_2 0.3000 ms 100.0% BLOCK_M=16, TABLE=2
4943= 27| a>   triton_mm_7 0.4500 ms 66.7% BLOCK_M=16, TABLE=5
f861= 27| a>   triton_mm_3 0.6750 ms 44.4% BLOCK_M=16, TABLE=5
9ff8= 28| b>   triton_mm_3 0.0123 ms 100.0% BLOCK_M=16, TABLE=9
1b28= 90| a> AUTOTUNE takes 5.5 seconds and 0.2500 seconds precompiling for 3 choices
"""
"""The log lacks the header of table 9."""

LOST_ROW = """\
1e8c= 69| b> AUTOTUNE bmm(8x128x256, 8x256x192)
d588= 24| a> AUTOTUNE bmm(8x128x256, 8x256x192)
c67e= 35| a> strides: [32768, 256, 1], [49152, 192, 1]
733d= 92| b> strides: [32768, 256, 1], [49152, 192, 1]
bdc5= 27| a>   triton_mm_2 0.0100 ms 100.0% BLOCK_M=16, TABLE=4
412f= 27| a>   triton_mm_0 0.0100 ms 100.0% BLOCK_M=16, TABLE=4
ab54= 90| a> AUTOTUNE takes 4.5 seconds and 0.2500 seconds precompiling for 2 choices
9b65= 28| c>   triton_mm_0 0.6000 ms 50.0% BLOCK_M=16, TABLE=8
a28c= 24| a> AUTOTUNE mm(64x32, 32x32)
38d0= 35| a> strides: [32, 1], [32, 1]
6198= 88| b>   triton_mm_2 0.3000 ms 100.0% BLOCK_M=16, TABLE=2
e995= 88| b>   triton_mm_1 0.6000 ms 50.0% BLOCK_M=16, TABLE=2
4943= 27| a>   triton_mm_7 0.4500 ms 66.7% BLOCK_M=16, TABLE=5
f861= 27| a>   triton_mm_3 0.6750 ms 44.4% BLOCK_M=16, TABLE=5
6f6b= 69| b> AUTOTUNE mm(64x32, 32x32)
1b28= 90| a> AUTOTUNE takes 5.5 seconds and 0.2500 seconds precompiling for 3 choices
539f= 11| b> AUTOTUNE takes 3.5 seconds and 0.2500 seconds precompiling for 1 choices
"""
"""The second row of table 2 is reported as lost before the words of its prefix are learned; the end
is that of table 3."""


@pytest.mark.parametrize("text", [LOST_HEADER, LOST_ROW], ids=["header", "row"])
def test_a_table_does_not_go_on_with_another_table_of_its_process(text: str) -> None:
    result = read(text)
    for tuning in result.tunings:
        tables = {table_of(choice.description) for choice in tuning.choices}
        if tuning.seconds.benchmark is not None:
            tables.add(int(tuning.seconds.benchmark))
        assert len(tables) == 1
    assert len(result.tunings) >= 3 and result.problems


def test_a_row_that_is_faster_than_the_last_is_of_a_table_whose_header_is_missing() -> None:
    """The state shows that the end of the first is missing, and a problem counts the lost rows."""
    rows = [line for line in MM.splitlines() if " ms " in line]
    text = MM.partition(rows[1])[0] + "  triton_mm_9 0.0050 ms 100.0%\n  mm 0.0080 ms 62.5%\n"
    result = read(text)
    assert [(len(t.choices), t.state) for t in result.tunings] == [(1, "cut")]
    (problem,) = result.problems
    assert problem.what == "2 rows of a table whose beginning is missing"


def test_many_prefixes_are_no_more_work_than_few() -> None:
    """Each header has a prefix of its own, and each row another."""

    def work(count: int) -> None:
        pair = "w{0}: AUTOTUNE mm({0}x32, 32x16)\nx{0}:  mm 0.01 ms 100.0%\n"
        read("".join(pair.format(n) for n in range(count)))

    assert is_linear(work, 125)


def test_wrappers_that_are_akin() -> None:
    bar, bare = Origins().of("[rank0]: 50%|███ | 1/2 "), Origins().of("[rank0]:")
    assert bar.akin(bare) and bare.akin(bar) and bar.akin(Origin())
    assert not bare.akin(Origins().of("[rank1]:"))


@pytest.mark.parametrize(
    ("wrapper", "name"),
    [
        ("trainer-0 | ", "trainer-0"),
        ("[2026-11-02 10:11:12 TP0] ", "TP0"),
        ("node.a/b@c x: ", "node.a/b@c x"),
        ("", ""),
        ("w" * 90, "w" * 80),
    ],
)
def test_a_process_is_named_as_its_wrapper_does(wrapper: str, name: str) -> None:
    who = Origins().of(wrapper)
    assert name_of((who.shape, who.words)) == name


@pytest.mark.parametrize(
    ("left", "right", "akin", "differing"),
    [
        ("a b", "a b", True, set()), ("a b c", "a c", True, None), ("a c", "a b c", True, None),
        ("a b", "b a", False, {0, 1}), ("a b", "a x", False, {1}), ("a a", "a", True, None),
        ("a", "a a", True, None), ("", "a", True, None), ("[a]", "a", True, None),
    ],
)  # fmt: skip
def test_which_wrappers_may_be_of_one_process(
    left: str, right: str, akin: bool, differing: set[int] | None
) -> None:
    one, other = Origins().of(left), Origins().of(right)
    assert one.akin(other) is other.akin(one) is akin
    assert one.differing(other) == differing

"""VaryingWords whose lines stand between each other's are told apart by any prefix."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from time import process_time

import pytest

from backend.model.tuning import Tuning
from rocm_tui.ingest.formats.processes import Origin, Origins, VaryingWords, rank_of
from tests.support.log_lab import BMM, MM, read
from tests.support.wrapped_logs import WRAPPED, Wrap

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


def prefixes_of(draw: random.Random, processes: int, noise: str) -> list[Callable[[int], str]]:
    """Prefixes of any words and signs that differ in one word; others may vary line by line."""

    def word() -> str:
        return "".join(draw.choices("abcdefghij0123456789", k=draw.randint(1, 6)))

    signs = draw.choices([" ", "-", "/", ":", "| ", "] [", ", ", "=", "@", "> "], k=4)
    words = [word() for _ in signs]
    place, varies = draw.sample(range(4), 2)
    names: dict[str, None] = {}
    while len(names) < processes:
        names[word()] = None

    def prefix_of(name: str) -> Callable[[int], str]:
        def prefix(n: int) -> str:
            vary = {"hex": f"{draw.getrandbits(40):010x}", "count": f"{1000 + n}"}
            vary["slow"] = f"{500 + n // 7}"
            own = {place: name, **({varies: vary[noise]} if noise else {})}
            return "".join(own.get(at, words[at]) + sign for at, sign in enumerate(signs)) + ": "

        return prefix

    return [prefix_of(name) for name in names]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("noise", ["", "hex", "count", "slow"])
def test_any_prefix_tells_processes_apart(noise: str, seed: int) -> None:
    """A word that changes slowly may cost rows, which are problems; nothing is ever mixed."""
    draw = random.Random(f"{noise} {seed}")
    texts = [MM + BMM + MM, OTHER + BMM + OTHER, BMM + MM, MM + OTHER + BMM]
    logs = [text.splitlines() for text in texts[: draw.randint(2, 4)]]
    prefixes = prefixes_of(draw, len(logs), noise)
    left = [(prefix, list(log)) for prefix, log in zip(prefixes, logs, strict=True)]
    lines: list[str] = []
    while left := [each for each in left if each[1]]:
        prefix, log = draw.choice(left)
        for _ in range(draw.randint(1, min(3, len(log)))):
            lines.append(prefix(len(lines)) + log.pop(0))
    result = read("\n".join(lines) + "\n")
    alone = [tuning for log in logs for tuning in read("\n".join(log) + "\n").tunings]
    if noise != "slow":
        assert not result.problems
        assert said(result.tunings) == said(alone)
    for tuning in result.tunings:
        assert any(
            tuning.shapes == one.shapes and set(tuning.choices) <= set(one.choices) for one in alone
        )


def test_many_prefixes_are_no_more_work_than_few() -> None:
    """Each header has a prefix of its own, and each row another."""
    lines = [f"w{n}: AUTOTUNE mm({n}x32, 32x16)\nx{n}:  mm 0.01 ms 100.0%" for n in range(20_000)]
    began = process_time()
    read("\n".join(lines) + "\n")
    assert process_time() - began < 5


def test_wrappers_that_are_akin() -> None:
    bar, bare = Origins().of("[rank0]: 50%|███ | 1/2 "), Origins().of("[rank0]:")
    assert bar.akin(bare) and bare.akin(bar) and bar.akin(Origin())
    assert not bare.akin(Origins().of("[rank1]:"))

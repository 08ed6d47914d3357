"""MM logs, cache files, structured traces, event logs, and telling them apart."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cache import configs
from backend.errors import CacheUnreadable
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceAdded,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    ProcessExited,
    SessionEnded,
    SessionStarted,
    TuningFailed,
    TuningStarted,
)
from backend.model.session import Fault, Session
from backend.wire.events import encode
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats import cache_file, mm_log
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.formats.reader import NotReadable
from rocm_tui.ingest.formats.registry import sniff
from rocm_tui.ingest.formats.torch_trace import TorchTrace
from rocm_tui.ingest.records import SessionSeen
from tests.support.format_lab import (
    KEY,
    STARTED,
    cache_text,
    lines,
    needs_corpus,
    problems,
    tunings,
)
from tests.support.places import CORPUS

# The autotune cache


def test_a_cache_file() -> None:
    times = {"mm-abc": 0.5, "triton-def": math.inf}
    data = cache_text({"mm": {KEY: {"highest": times, "high": {"mm-abc": 0.25}}}})
    found = tunings(cache_file.parse(data, "c"))
    first, second = found.values()
    assert (first.op, first.precision, first.inputs_key) == ("mm", "highest", KEY)
    assert (first.shapes, first.strides) == (((2, 3), (3, 4)), ((3, 1), (4, 1)))
    assert (first.dtypes, first.device) == (("torch.float32",) * 2, "cpu")
    assert first.choices == (
        Choice(hash="mm-abc", ms=0.5),
        Choice(hash="triton-def", failed=True),
    )
    assert second.precision == "high"
    # A key that is written before others does not rename them.
    more = cache_text({"addmm": {KEY: {"high": {}}}, "mm": {KEY: {"highest": times}}})
    assert set(tunings(cache_file.parse(more, "c"))) & set(found) == {next(iter(found))}


def test_a_key_of_no_known_form_keeps_its_times() -> None:
    (tuning,) = tunings(cache_file.parse(cache_text({"f": {"?": {"p": {"h": 1}}}}), "c")).values()
    assert (tuning.shapes, tuning.inputs_key, tuning.choices[0].ms) == ((), "?", 1.0)


def test_a_hostile_cache_file() -> None:
    data = cache_text({"\x1b]0;x\x07mm": {KEY: {"high": {"h": 1.0}}}, "ok": 3})
    records = cache_file.parse(data, "c")
    assert not tunings(records)
    assert len(records) == 2
    assert all(clean(text) == text for text in problems(records))


@needs_corpus
@pytest.mark.parametrize("path", sorted(CORPUS.glob("local_cache*")), ids=lambda path: path.name)
def test_caches_of_the_corpus(path: Path) -> None:
    document = json.loads(path.read_bytes())["cache"]
    expected = {
        (op, inputs, precision): times
        for op, by_inputs in document.items()
        for inputs, by_precision in by_inputs.items()
        for precision, times in by_precision.items()
    }
    found = tunings(cache_file.parse(path.read_bytes(), str(path))).values()
    assert {(t.op, t.inputs_key, t.precision) for t in found} == set(expected)
    for tuning in found:
        assert tuning.shapes and tuning.device == "cpu"
        times = expected[tuning.op, tuning.inputs_key or "", tuning.precision or ""]
        assert {c.hash: c.ms for c in tuning.choices} == times


# Structured traces


def trace_event(name: str, phase: str, ts: float, **args: str) -> str:
    event = {"name": name, "ts": ts, "args": args, "ph": phase, "cat": "dynamo_timed"}
    head = "V1120 10:10:29.070000 6512 torch/_dynamo/utils.py:2350] "
    head += '{"chromium_event": {}, "rank": 2, "has_payload": "abc"}'
    payload = json.dumps(event, indent=0).replace("\n", "\n\t")
    return f"{head}\n\t{payload}\n"


SHAPES = {
    "autotune_shape": "s0x3, 3x4, ",
    "autotune_shape_hinted": "2x3, 3x4, ",
    "autotune_strides_hinted": "(3, 1), (4, 1), ()",
    "autotune_dtypes": "torch.float16, torch.float16, torch.int8",
}
STATS = {
    "num_choices": 20,
    "best_kernel": "addmm",
    "best_time": 0.125,
    "best_triton_kernel": "triton_mm_4",
    "best_triton_time": 0.25,
    "best_triton_kernel_desc": "BLOCK_M=16",
}


def test_a_trace() -> None:
    start = trace_event("addmm_template_autotuning", "B", 5e6, **SHAPES)
    end = trace_event(
        "addmm_template_autotuning", "E", 7.5e6, **SHAPES, autotune_choices_stats=json.dumps(STATS)
    )
    reader = TorchTrace("t")
    (running,) = tunings(
        reader.feed(trace_event("dynamo", "B", 1).encode() + start.encode())
    ).values()
    assert (running.op, running.state, running.when, running.rank) == ("addmm", "running", 5.0, 2)
    assert running.shapes == ((2, 3), (3, 4), ())
    assert running.strides == ((3, 1), (4, 1), ())
    (done,) = tunings(reader.feed(end.encode())).values()
    assert [(c.name, c.ms, c.description) for c in done.choices] == [
        ("addmm", 0.125, ""),
        ("triton_mm_4", 0.25, "BLOCK_M=16"),
    ]
    assert (done.num_choices, done.seconds.benchmark, done.state) == (20, 2.5, "done")
    assert reader.close() == []


def test_a_trace_without_statistics_tells_no_tuning() -> None:
    text = trace_event("mm_template_autotuning", "B", 1, **SHAPES)
    text += trace_event("mm_template_autotuning", "E", 2, **SHAPES)
    reader = TorchTrace("t")
    records = reader.feed(text.encode()) + reader.close()
    assert tunings(records) == {}


def test_a_trace_cut_off() -> None:
    reader = TorchTrace("t")
    records = reader.feed(trace_event("mm_template_autotuning", "B", 1, **SHAPES).encode())
    (tuning,) = tunings(records + reader.close()).values()
    assert tuning.state == "cut"
    assert reader.close() == []  # it has been reported


@pytest.mark.parametrize("time", [-1.0, "0.1", None, True])
def test_statistics_of_a_trace_that_cannot_be_read(time: object) -> None:
    stats = json.dumps({**STATS, "best_time": time})
    for text in (stats, stats[:-5]):
        end = trace_event("mm_template_autotuning", "E", 2, autotune_choices_stats=text)
        reader = TorchTrace("t")
        records = reader.feed((trace_event("mm_template_autotuning", "B", 1) + end).encode())
        assert tunings(records) == {}
        assert problems(records) == ["statistics of mm that cannot be read"]


@pytest.mark.parametrize("dtypes", ["torch.bfloat16, torch.bflo", 'torch.int8"}', "float32"])
def test_dtypes_of_a_trace_that_are_none(dtypes: str) -> None:
    text = trace_event("mm_template_autotuning", "B", 1, autotune_dtypes=dtypes)
    reader = TorchTrace("t")
    records = reader.feed(text.encode())
    (problem,) = (record for record in records if isinstance(record, Fault))
    assert (problem.what, problem.line) == (
        f"dtypes of mm that are none: {dtypes}",
        text.count("\n"),
    )
    (tuning,) = tunings(records).values()
    assert tuning.dtypes == ()


@pytest.mark.parametrize(
    ("strides", "known"),
    [
        ("[3, 1], [4, 1]", ((3, 1), (4, 1))),
        ("[s0, 1], [4, 1]", ()),
        ("no strides", ()),
        ("", ()),
    ],
)
def test_strides_of_a_trace_are_all_known_or_none(
    strides: str, known: tuple[tuple[int, ...], ...]
) -> None:
    args = {"autotune_shape": "2x3, 3x4", "autotune_strides": strides}
    text = trace_event("mm_template_autotuning", "B", 1, **args)
    (tuning,) = tunings(TorchTrace("t").feed(text.encode())).values()
    assert (tuning.shapes, tuning.strides) == (((2, 3), (3, 4)), known)


def test_a_torn_event_of_a_trace() -> None:
    text = trace_event("mm_template_autotuning", "B", 1, **SHAPES)
    half = text[: len(text) * 2 // 3].rpartition("\n")[0] + "\n"
    for torn in (half, half + "\t}\n"):
        reader = TorchTrace("t")
        records = reader.feed((torn + text).encode()) + reader.close()
        assert problems(records) == ["an event of an autotuning that is torn"]
        assert len(tunings(records)) == 1


def test_a_negative_time_is_none(tmp_path: Path) -> None:
    cached = cache_text({"mm": {KEY: {"highest": {"a": -0.5, "b": 0.5}}}})
    records = cache_file.parse(cached, "c")
    (tuning,) = tunings(records).values()
    assert [(choice.hash, choice.ms) for choice in tuning.choices] == [("b", 0.5)]
    assert problems(records) == [
        f"-0.5 of a, mm at {KEY[:79]}…: not the milliseconds of a kernel; tune it again, "
        "for PyTorch takes the smallest number"
    ]
    pair = [{"kwargs": {"BLOCK": 1}}, [-0.5, 0.1, 0.2]]
    with pytest.raises(CacheUnreadable, match="without its times"):
        configs.parse(
            tmp_path / "k.autotune.json",
            json.dumps({"key": [1], "configs_timings": [pair]}).encode(),
        )


@needs_corpus
def test_the_trace_of_the_corpus_has_no_tunings() -> None:
    data = (CORPUS / "torch_trace_structured_autotune.log").read_bytes()
    assert sniff(data) == "torch trace"
    reader = TorchTrace("t")
    assert reader.feed(data) + reader.close() == []


# Event logs

SESSION = Session(id="s1", host="box", pid=7, rank=3, argv=("python", "a.py"))


def test_a_session_folds_into_a_tuning_that_progresses() -> None:
    reader = EventLog("s.jsonl")
    records = reader.feed(lines(SessionStarted(SESSION), STARTED))
    assert records[0] == SessionSeen(SESSION)
    (running,) = tunings(records).values()
    assert (running.state, running.num_choices, running.compiled, running.timed) == (
        "running",
        3,
        0,
        0,
    )
    assert (running.session, running.rank, running.when) == ("s1", 3, 100.0)
    reader.feed(
        lines(ChoiceCompiled(1, "a-h", 0.5), ChoiceFailed(1, "b-h", "precompile", "no LDS"))
    )
    (timed,) = tunings(reader.feed(lines(ChoiceTimed(1, "c-h", 0.25)))).values()
    assert (timed.compiled, timed.timed) == (1, 1)
    assert [(c.name, c.ms, c.failed, c.reason) for c in timed.choices] == [
        ("c", 0.25, False, None),
        ("a", None, False, None),
        ("b", None, True, "no LDS"),
    ]
    end = ChoiceSelected(1, 101.0, "c-h", "timing", 1.5, 0.5)
    (done,) = tunings(reader.feed(lines(ChoiceTimed(1, "a-h", math.inf), end))).values()
    assert (done.state, done.selected, done.selected_by) == ("done", "c-h", "timing")
    assert (done.seconds.benchmark, done.seconds.precompile) == (1.5, 0.5)
    assert [c.failed for c in done.choices] == [False, True, True]
    assert reader.close() == []


def test_a_killed_session_and_a_torn_line() -> None:
    reader = EventLog("s")
    data = lines(SessionStarted(SESSION), STARTED, ChoiceTimed(1, "a-h", 1.0))
    records = reader.feed(data[:-5]) + reader.close()
    (tuning,) = tunings(records).values()
    assert (tuning.state, tuning.timed) == ("cut", 0)
    assert problems(records) == []


def test_the_end_of_a_session_cuts_what_runs_and_failures_are_told() -> None:
    other = TuningStarted(**{f: getattr(STARTED, f) for f in STARTED.__slots__} | {"n": 2})
    data = lines(STARTED, other, TuningFailed(2, 5.0, "all failed"), SessionEnded(6.0))
    reader = EventLog("s")
    records = reader.feed(data)
    assert [t.state for t in tunings(records).values()] == ["cut", "done"]
    assert problems(records) == ["tuning mm failed: all failed"]


def test_a_choice_that_is_added_takes_part_in_a_tuning_that_goes_on() -> None:
    added = ChoiceAdded(1, Choice("d\x1b[2J", hash="d-h"), "a-h", "XBLOCK 64 to 128")
    reader = EventLog("s")
    reader.feed(lines(STARTED))
    (tuning,) = tunings(reader.feed(lines(added, ChoiceTimed(1, "d-h", 0.5)))).values()
    assert (tuning.state, tuning.num_choices) == ("running", 4)
    (choice,) = (choice for choice in tuning.choices if choice.hash == "d-h")
    assert (choice.name, choice.ms) == ("d", 0.5)
    assert (choice.origin, choice.moved) == ("a-h", "XBLOCK 64 to 128")


def test_added_choices_without_a_hash_go_by_their_names() -> None:
    reader = EventLog("s")
    reader.feed(lines(STARTED))
    added = [ChoiceAdded(1, Choice(name), "a-h", "XBLOCK 64 to 128") for name in ("d", "e")]
    (tuning,) = tunings(reader.feed(lines(*added, ChoiceTimed(1, "e", 0.5)))).values()
    assert tuning.num_choices == len(STARTED.choices) + 2
    told = {choice.name: choice.ms for choice in tuning.choices if choice.origin == "a-h"}
    assert told == {"d": None, "e": 0.5}
    assert len(tuning.choices) == tuning.num_choices


@pytest.mark.parametrize("end", [SessionEnded(6.0), ProcessExited(6.0, 0)])
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_the_end_of_a_session_is_the_last_word_on_its_tunings(end: Event, piece: int) -> None:
    other = TuningStarted(**{f: getattr(STARTED, f) for f in STARTED.__slots__} | {"n": 2})
    selected = ChoiceSelected(1, 101.0, "a-h", "timing", 1.5, 0.5)
    data = lines(STARTED, selected, other, end, ChoiceTimed(1, "a-h", 1.0), selected)
    reader = EventLog("s")
    records = [r for at in range(0, len(data), piece) for r in reader.feed(data[at : at + piece])]
    assert [t.state for t in tunings(records).values()] == ["done", "cut"]
    assert problems(records) == ["an event of tuning 1, of which no start is known"] * 2
    (anew,) = tunings(reader.feed(lines(STARTED))).values()  # another session in the same file
    assert anew.state == "running"


def test_more_is_told_of_a_tuning_that_ended_a_while_ago_but_not_long_ago() -> None:
    def ended(n: int) -> bytes:
        started = TuningStarted(**{f: getattr(STARTED, f) for f in STARTED.__slots__} | {"n": n})
        return lines(started, ChoiceSelected(n, 101.0, "a-h", "timing", 1.5, 0.5))

    reader = EventLog("s")
    reader.feed(b"".join(map(ended, range(1, 1102))))
    records = reader.feed(lines(ChoiceTimed(102, "a-h", 1.0), ChoiceTimed(101, "a-h", 1.0)))
    (late,) = tunings(records).values()
    assert (late.state, late.selected, late.choices[0].ms) == ("done", "a-h", 1.0)
    assert problems(records) == ["an event of tuning 101, of which no start is known"]


def test_what_is_no_event_is_a_problem_and_the_rest_is_read() -> None:
    bad = b'{"event": "choice_timed"}\n\xff\n[]\n{"event":"of_the_future","x":1}\n'
    reader = EventLog("s")
    records = reader.feed(bad + lines(ChoiceTimed(9, "h", 1.0), STARTED))
    assert len(tunings(records)) == 1
    assert [r.line for r in records if isinstance(r, Fault)] == [1, 2, 3, 5]


def test_strings_of_events_are_cleaned() -> None:
    hostile = TuningStarted(
        **{f: getattr(STARTED, f) for f in STARTED.__slots__}
        | {"op": "m\x1b[2Jm", "choices": (Choice(name="a\x07", hash="h\n"),)}
    )
    (tuning,) = tunings(EventLog("s").feed(lines(hostile))).values()
    assert (tuning.op, tuning.choices[0].name, tuning.choices[0].hash) == ("mm", "a", "h")


# Telling formats apart


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"Validator,PT_VERSION,2.4.0\n", "tunableop"),
        (b"GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8\n", "tunableop"),
        (encode(SessionStarted(SESSION)).encode(), "event log"),
        (b'{\n    "system": {\n', "autotune cache"),
        (b'[\n    {\n        "(64, 2, 3)": [\n', "mm log"),
        (b'[\n    {\n        "invoke": "(1, 2, 3)"\n', "mm log"),
        (b"[\n", "empty"),
        (b'[\n    {\n        "(6', "mm log"),
        (b'{\n    "sys', "empty"),
        (b'V1120 10:10:29.070000 65 torch/x.py:2350] {"str": ["/a", 1]}\n', "torch trace"),
        (b"V1120 10:10:29.070000 65 torch/x.py:2350] [0/0] [__autotuning] x\n", "stderr log"),
        (b"[rank0]: hello\n", "stderr log"),
        (b"[titan] hello\n", "stderr log"),
        (b"\x1b[31mred\x1b[0m\n", "stderr log"),
        (b"caf\xe9 latin-1\n", "stderr log"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        (b"SQLite format 3\0\x10\0\x01\x01\0", "binary"),
        (b"\x80\x04\x95\0\0\0\0\x8c\ntorch\n", "binary"),
        (b"epoch 1\0 loss 0.5\n", "stderr log"),
        (b"\0hello\n", "stderr log"),
        (bytes(range(1, 32)) * 40, "binary"),
    ],
)
def test_sniff(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


KINDS = {
    "local_cache*": "autotune cache",
    "local_mmlog*": "mm log",
    "tunableop*": "tunableop",
    "torch_trace*": "torch trace",
    "*.log": "stderr log",
}


@needs_corpus
@pytest.mark.parametrize("names", KINDS)
def test_sniff_the_corpus(names: str) -> None:
    paths = [path for path in CORPUS.glob(names) if KINDS[names] == kind_of(path)]
    assert paths
    assert {sniff(path.read_bytes()) for path in paths} == {KINDS[names]}


def kind_of(path: Path) -> str:
    """By its name; the first that fits."""
    return next(kind for names, kind in KINDS.items() if path.match(names))


# Anything at all

JSONISH = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["cache", "system", "choices", "(1, 2, 3)", "time", "kernel_type", "invoke",
                 "query_shape", "input_shape", "name", "ts", "ph", "args", "event", "n", KEY]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300)
@given(JSONISH)
def test_no_json_raises_out_of_a_reader(value: object) -> None:
    text = json.dumps(value)
    mm_log.parse(f"[{text}]".encode(), "m")
    for document in (text.encode(), cache_text(value)):
        with suppress(NotReadable):
            cache_file.parse(document, "c")
    log = EventLog("s")
    log.feed(f"{text}\n".encode())
    log.close()
    head = 'V1120 10:10:29.070000 1 x.py:1] {"chromium_event": {}, "rank": ' + text + "}\n\t"
    trace = TorchTrace("t")
    named = json.dumps({"name": "mm_template_autotuning", "ts": 1, "ph": "B", "args": value})
    for event in (text, named, named.replace('"B"', '"E"')):
        trace.feed((head + event[:-1] + "\n\t}\n").encode())
    trace.close()


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_raise_out_of_a_reader(data: bytes, cut: int) -> None:
    whole = lines(SessionStarted(SESSION), STARTED, ChoiceTimed(1, "a-h", 1.0))
    trace = trace_event("mm_template_autotuning", "B", 1, **SHAPES).encode()
    for reader, text in ((EventLog("s"), whole), (TorchTrace("t"), trace)):
        for piece in (text[:cut], data, text[cut:]):
            reader.feed(piece)
        reader.close()
    for parse in (mm_log.parse, cache_file.parse):
        with suppress(NotReadable):
            parse(data, "x")
    sniff(data)

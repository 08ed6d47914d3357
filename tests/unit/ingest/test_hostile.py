"""Numbers that cannot be, damaged code objects, empty lines: each is read, or told in one line."""

from __future__ import annotations

import json
import math
import os
import resource
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.cache.journal import NOTHING, Journal, Tuned, line_of, tuned_of
from backend.disk.layout import Layout
from backend.model.choice import MeasuredChoice, Measurement
from backend.model.ops import flops
from backend.model.session import Fault
from backend.model.tuning import LATEST, Tuning
from backend.templates.reproducer import ReproducerError, kept_source
from backend.toolchain.resources import Resources, Unknown, from_file, from_ptxas, occupancy
from backend.toolchain.target import amdgpu
from rocm_tui.cli.entry import main
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.formats.unwrap import REPEATED
from rocm_tui.ingest.records import MeasurementSeen, Seen
from rocm_tui.render import plot as whiskers
from rocm_tui.session import stats
from tests.campaign import _seeds, inputs
from tests.campaign._readers import READERS, REFUSALS, Reader
from tests.campaign._seeds import code_object

KERNEL = {".name": "a", ".vgpr_count": 9, ".group_segment_fixed_size": 9, ".wavefront_size": 64}
ODD = [[], {}, "x", -1, 1 << 70, 1.5, True, None, [1], {"a": 1}]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    return _seeds.seeds(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_exception_leaves_a_reader(
    reader: Reader, seeds: dict[str, list[bytes]], tmp_path: Path
) -> None:
    for seed in seeds[reader.kind]:
        reader.read(seed, tmp_path)  # what is well is read without a refusal
    for number in range(60):
        data = reader.mutate(inputs.drawn(reader, number, 1), seeds[reader.kind])
        try:
            reader.read(data, tmp_path)
        except REFUSALS:
            continue


def changed(seeds: dict[str, list[bytes]], event: str, **fields: Any) -> bytes:
    """The session log with other fields in each event of a kind."""
    lines = [json.loads(line) for line in seeds["events"][0].splitlines()]
    for line in lines:
        line.update(fields if line["event"] == event else {})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


ENDLESS = [
    ("tuning_started", {"shapes": [[10**310, 40], [40, 10**310]]}),
    ("tuning_started", {"shapes": [[1 << 62] * 40, [1 << 62] * 40]}),
    ("tuning_started", {"when": "inf"}),
    ("tuning_started", {"when": "nan"}),
    ("choice_timed", {"ms": "inf"}),
    ("choice_timed", {"ms": 5e-324}),
    ("choice_timed", {"ms": -1.0}),
    ("choice_selected", {"benchmark_seconds": "inf", "precompile_seconds": "-inf"}),
    ("choice_selected", {"benchmark_seconds": "nan", "when": 1e308}),
]


@pytest.mark.parametrize(("event", "fields"), ENDLESS, ids=lambda part: str(part)[:40])
def test_an_event_with_a_number_that_cannot_be(
    event: str, fields: dict[str, Any], seeds: dict[str, list[bytes]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_bytes(changed(seeds, event, **fields))
    home = ["--cache-dir", str(tmp_path / "none")]
    for words in (["ls"], ["compare"], ["compare", str(log)]):
        assert main([*words, str(log), *home]) in (0, 1, 2)
        capsys.readouterr()
        code, printed = main([*words, str(log), "--json", *home]), capsys.readouterr().out
        assert printed or code, "a yes has data"
        if printed:
            json.loads(printed, parse_constant=pytest.fail)


def test_what_is_not_finite_is_not_known(seeds: dict[str, list[bytes]]) -> None:
    data = changed(seeds, "choice_selected", benchmark_seconds="inf", precompile_seconds=0.5)
    reader = EventLog("a")
    tuning = [r.tuning for r in reader.feed(data) if isinstance(r, Seen)][-1]
    assert (tuning.seconds.benchmark, tuning.seconds.precompile) == (None, 0.5)


TOLD = MeasuredChoice("mm-c1", 0.5, 0.4, 0.6, 0.01, 9, 1.0, 1.0, 1.0, "faster", "mm")
MEASURED = Measurement("mm", _seeds.MM, "highest", 3e8, (TOLD,))
CANNOT: list[dict[str, Any]] = [
    *({"when": when} for when in ("inf", "nan", -1.0, LATEST * 2)),
    {"seconds": "inf"},
    {"reference_ms": "nan"},
    *({"choices": {"ms": ms}} for ms in ("inf", "nan", 0.0, -1.0)),
    *({"choices": {"ratio": ratio}} for ratio in ("inf", "nan", 0.0)),
    {"choices": {"ratio_high": "nan"}},
]


@pytest.mark.parametrize("change", CANNOT, ids=str)
def test_a_measurement_that_cannot_be(
    change: dict[str, Any], seeds: dict[str, list[bytes]]
) -> None:
    lines = [json.loads(line) for line in seeds["events"][0].splitlines()]
    (event,) = (line["measurement"] for line in lines if line["event"] == "tuning_measured")
    event["choices"][0].update(change.get("choices", {}))
    event.update({name: value for name, value in change.items() if name != "choices"})
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    found = EventLog("a").feed(data)
    assert not [record for record in found if isinstance(record, MeasurementSeen)]
    (problem,) = (record for record in found if isinstance(record, Fault))
    of_a_choice = problem.what.startswith("`measurement`: choice 1: `ms` is not a time of a kernel")
    assert of_a_choice or problem.what == "a measurement of mm whose numbers cannot be"


def test_an_interval_without_an_end_is_drawn() -> None:
    """So it is where too few rounds were made."""
    told = [replace(TOLD, ratio=1.1, ratio_low=0.0, ratio_high=math.inf), TOLD]
    scale = whiskers.scale_of(told, 20)
    assert [len(whiskers.interval(scale, one)) for one in told] == [20, 20]


def test_sizes_that_no_machine_has() -> None:
    for size in (10**310, -4):
        tuning = Tuning("mm", shapes=((size, 8), (8, size)), dtypes=("torch.float32",) * 2)
        assert flops(tuning) is None and stats.tflops(tuning, 1.0) is None
    tuning = Tuning("mm", shapes=((8, 8), (8, 8)))
    assert stats.tflops(tuning, 5e-324) is None
    assert len(Tuning("m\ud800").id) == 7


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", '"9"', "[]", "{}", "1e400"])
@pytest.mark.parametrize("field", ["length", "before", "after"])
def test_a_journals_header(number: str, field: str, tmp_path: Path) -> None:
    journal = Journal(tmp_path, tmp_path / "cache" / "hash")
    fold = {"journal": "ab", "length": 9, "before": [1, 2, 3], "after": [1, 2, 4]}
    fold[field] = "@" if field == "length" else ["@", 2, 3]
    header = json.dumps({"journal": "cd", "fold": fold}).replace('"@"', number)
    journal.path.parent.mkdir(parents=True)
    journal.path.write_text(header + "\n{}\n")
    found = journal.read()
    assert found.id in ("", "cd") and found is not NOTHING


def test_a_time_that_no_float_holds() -> None:
    line = line_of(Tuned("mm", "[]", "highest", {"a": 1.5}, 1.0))
    assert tuned_of(line) is not None
    for odd in (b"1" + b"0" * 310, b"true", b"[]", b"9" * 5000):
        assert tuned_of(line.replace(b"1.5", odd)) is None


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("name", [".vgpr_count", ".sgpr_count", ".group_segment_fixed_size"])
def test_a_note_with_another_type(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.co"
    try:
        path.write_bytes(code_object({"amdhsa.kernels": [{**KERNEL, name: value}]}))
    except OverflowError:
        return  # msgpack has no such number
    (found,) = read(path)
    field = {"g": "lds", "v": "vgprs", "s": "sgprs"}[name[1]]
    assert getattr(found, field) is None
    for arch in ("gfx942", "gfx1100"):
        occupancy(amdgpu(arch), found, 256)


def read(path: Path) -> tuple[Resources, ...]:
    found = from_file(path)
    assert not isinstance(found, Unknown), found
    return found


def header(size: int = 56, count: int = 1, offset: int = 64) -> Callable[[bytearray], None]:
    def change(elf: bytearray) -> None:
        struct.pack_into("<Q", elf, 32, offset)
        struct.pack_into("<HH", elf, 54, size, count)

    return change


def overlapping(elf: bytearray) -> None:
    """200 headers that all point to one segment of all the file."""
    program = struct.pack("<IIQQQQ", 4, 4, 0, 0, 0, 1 << 40) + bytes(16)
    elf[64:] = program * 200 + bytes(200_000)
    struct.pack_into("<HH", elf, 54, 56, 200)


@pytest.mark.parametrize(
    "change",
    [header(0, 65535), header(0), header(1, 65535), header(56, 65535), header(offset=2**64 - 1),
     header(offset=2**63), overlapping],
    ids=["none", "zero", "one", "many", "far", "farther", "overlapping"],
)  # fmt: skip
def test_program_headers_that_no_linker_writes(
    change: Callable[[bytearray], None], tmp_path: Path
) -> None:
    elf = bytearray(code_object({"amdhsa.kernels": [KERNEL] * 500}))
    change(elf)
    path = tmp_path / "a.co"
    path.write_bytes(elf)
    assert isinstance(from_file(path), Unknown)


def test_a_few_bytes_ask_for_no_gigabytes(tmp_path: Path) -> None:
    """Lists in lists, each of which claims as many items as the file has bytes."""
    note = b"\x81\xaeamdhsa.kernels" + (b"\xdd" + struct.pack(">I", 4_000_000)) * 500
    elf = bytearray(code_object(None)) + note + bytes(8_000_000)
    segment = struct.pack("<III", 7, len(elf) - 140, 32) + b"AMDGPU\0\0"
    elf[120 : 120 + len(segment)] = segment
    struct.pack_into("<Q", elf, 64 + 32, len(elf) - 120)
    path = tmp_path / "a.co"
    path.write_bytes(elf)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
        code = 1
        try:
            from_file(path)
            code = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 2 << 20)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_number_of_many_digits_in_a_compilers_log() -> None:
    (found,) = from_ptxas(f"Compiling entry function 'a' for 'sm_90'\nUsed {'9' * 5000} registers")
    assert found.vgprs is None


def test_a_pipe_among_the_modules(tmp_path: Path) -> None:
    folder = Layout(tmp_path).triton
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.py")
    with pytest.raises(ReproducerError):
        kept_source(folder, "", "rocm_triton-x")


def test_a_table_that_has_ended_among_others_of_its_process(tmp_path: Path) -> None:
    """Its lines are dealt out again, when a row shows that several tables were open."""
    header = "[rank1]:AUTOTUNE addmm(20x24, 20x40, 40x24)\n"
    end = (
        "SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 0.5 seconds precompiling for "
        "3 choices\n"
    )
    path = tmp_path / "log"
    path.write_text(2 * header + end + 2 * "[rank1]:  bias_addmm 0.0100 ms 100.0%\n")
    assert any(isinstance(record, Seen) for record in read_sources([str(path)]))


def test_blanks_before_what_ray_adds_are_read_in_linear_time() -> None:
    blanks = 1_000_000 * " "
    assert REPEATED.search(f"x{blanks}[repeated 7x across cluster") is None
    found = REPEATED.search(f"x{blanks}[repeated 7x across cluster]")
    assert found is not None and (found.start(), found[1]) == (1, "7")

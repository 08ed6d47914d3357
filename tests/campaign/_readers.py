"""What reads inputs of others, each with what the program then does with what was read.

A reader takes the bytes and a folder of its own; it returns whatever it found, or raises one of
`REFUSALS`, which the program tells in one line. Anything else that it raises is a fault.
"""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from backend.cache.autotune import merge_missing, parse_cache
from backend.cache.code import code_hash
from backend.cache.journal import Journal, line_of, tuned_in
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.errors import StoreError
from backend.model.choice import Choice
from backend.model.problem import parse_inputs_key
from backend.pins.file import read_pin_file
from backend.pins.graphs.match import WantedChoice, judge, may_hold
from backend.pins.graphs.parts import fragment_nodes, kernel_config
from backend.pins.graphs.text import read_graph_text
from backend.pins.store import PinStore
from backend.sharing import share
from backend.sharing.lookup_table import as_json, lookup_table
from backend.sharing.plan import differences
from backend.sharing.share import Machine
from backend.toolchain import code_cache
from backend.toolchain.resources import from_file, from_ptxas, occupancy
from backend.toolchain.target import amdgpu
from backend.wire.codec import to_json
from rocm_tui import say
from rocm_tui.actions.doctor import examine_mega_cache
from rocm_tui.actions.measure import measure_job
from rocm_tui.cli.setup import MegaCacheJson
from rocm_tui.compare.comparison import compare, whole
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.formats import cache_file, mm_log
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.formats.profiler_trace import ProfilerTrace
from rocm_tui.ingest.formats.reader import NotReadable
from rocm_tui.ingest.formats.stderr_log import StderrLog, of_file
from rocm_tui.ingest.formats.torch_trace import TorchTrace, TraceCode
from rocm_tui.ingest.records import Record
from rocm_tui.jobs.tune import problem_of, words_of
from rocm_tui.jobs.worker import heard_progress
from rocm_tui.json_output import builtins_of
from rocm_tui.launch.stderr import CHUNK, TableFilter
from rocm_tui.render import (
    choices as choice_lines,
)
from rocm_tui.render import (
    compare as compare_text,
)
from rocm_tui.render import (
    detail as detail_lines,
)
from rocm_tui.render import (
    pages as report_cells,
)
from rocm_tui.render import (
    report as report_text,
)
from rocm_tui.render import (
    side_by_side,
)
from rocm_tui.render import side_by_side as resource_text
from rocm_tui.render import (
    tunings as tuning_cells,
)
from rocm_tui.render.compare import ComparisonJson
from rocm_tui.render.graphs import GraphJson, graph_text
from rocm_tui.render.jobs import progress_text
from rocm_tui.render.pins import PinJson
from rocm_tui.render.report import ReportJson
from rocm_tui.render.tuning_json import ResourcesJson, TuningJson
from rocm_tui.report.job import report
from rocm_tui.session.graph_rows import graph_rows
from rocm_tui.session.kernel_resources import ResourceUse
from rocm_tui.session.model import Model
from tests.campaign import _mutate, _seeds

REFUSALS = (NotReadable, StoreError, RocmTuiError)
Read = Callable[[bytes, Path], object]
Mutate = Callable[[Random, list[bytes]], bytes]


@dataclass(frozen=True)
class Reader:
    """`kind` names its seeds; `mutate` makes an input of them."""

    name: str
    kind: str
    read: Read
    mutate: Mutate = _mutate.mutated


def pieces(data: bytes) -> list[bytes]:
    """As a log grows: its place of cutting follows from its content, so a try can be repeated."""
    at = zlib.crc32(data) % (len(data) + 1)
    return [data[:at], data[at:]]


def stream(make: Callable[[str], Any]) -> Read:
    def read(data: bytes, folder: Path) -> None:
        reader = make("a.log")
        records = [record for piece in pieces(data) for record in reader.feed(piece)]
        shown([*records, *reader.settle(), *reader.close()], data)

    return read


def whole_file(parse: Callable[[bytes, str], list[Record]]) -> Read:
    return lambda data, folder: shown(parse(data, "a.json"), data)


def shown(records: Iterable[Record], data: bytes) -> None:
    """What `ls` says of these records; for one input in four all that commands and screens say."""
    model = Model()
    model.apply(records)
    rows = model.rows()
    strict([TuningJson.of(row) for row in rows], model.problems)
    harmless(tuning_cells.tunings_text(rows))
    graphs = graph_rows(model, Layout(Path("/nowhere")))
    strict([builtins_of(GraphJson.of(graph)) for graph in graphs])
    for graph in graphs[:3]:
        harmless(graph_text(graph))
    if zlib.crc32(data) % 4:
        return
    for row in rows[:3]:
        harmless(detail_lines.show_text(row))
        tuning_cells.cells(row, 1e9)
        slots = choice_lines.choice_slots(row, 80)
        lines = [detail_lines.title(row), detail_lines.verdict(row.tuning)]
        lines += [detail_lines.cost(row.tuning), detail_lines.measured(row.tuning) or ()]
        lines += [
            choice_lines.choice_line(row, at, slots, choice_lines.NOTHING, frozenset())
            for at in range(len(row.tuning.choices))
        ]
        for line in lines:
            harmless("".join(text for text, _ in line))
        choices = side_by_side.default_choices(row.tuning)
        side_by_side.facts(row.tuning, choices, {}, all_keys=True)
        with suppress(*REFUSALS):
            strict(words_of(problem_of(row.tuning)), to_json(measure_job(row.tuning, choices)))
    reported(model)


def reported(model: Model) -> None:
    part = whole("a", model)
    found = report(part)
    harmless(report_text.text(found))
    report_cells.pages(found)
    both = compare(part, part)
    harmless(compare_text.text(both) + compare_text.markdown(both))
    strict(builtins_of(ReportJson.of(found)), builtins_of(ComparisonJson.of(both)))


def strict(*values: object) -> None:
    with redirect_stdout(io.StringIO()) as out:
        say.out_json(list(values))
    json.loads(out.getvalue(), parse_constant=_refuse, object_hook=len)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def harmless(text: str) -> None:
    """Newlines are ours; all else that a terminal would obey came from the input."""
    for line in text.split("\n"):
        assert line == plain(line, len(line)), repr(line[:200])


def _at(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _events_file(data: bytes, folder: Path) -> None:
    read_log(_at(folder, "events.jsonl", data))


def _tail(data: bytes, folder: Path) -> None:
    """A file that grows, in whatever format its first bytes make it."""
    path = folder / "tail"
    path.unlink(missing_ok=True)
    tailer = Tailer(str(path))
    for now, piece in enumerate(pieces(data)):
        with path.open("ab") as file:
            file.write(piece)
        tailer.poll(float(now))
    tailer.poll(9.0)


def _scan(data: bytes, folder: Path) -> None:
    log = of_file(str(_at(folder, "scan", data)))
    Model().apply([*log.feed(data), *log.close()])


def _cache(data: bytes, folder: Path) -> None:
    path = Path("cache")
    merge_missing(path, data, _seed("cache", folder))
    for key in list(parse_cache(path, data).entries)[:3]:
        with suppress(*REFUSALS):
            parse_inputs_key(key.inputs)


def _pins(data: bytes, folder: Path) -> None:
    """The pins file of a cache dir, with a cache that fits the seed."""
    layout = Layout(folder / "inductor")
    if not layout.autotune.exists():
        layout.autotune.mkdir(parents=True)
        layout.pins.parent.mkdir()
        (layout.autotune / "hash").write_bytes(_seed("cache", folder))
    layout.pins.write_bytes(data)
    file = read_pin_file(layout.pins)
    file._encode()
    for entry in (*file.history, *(record.pin for record in file.pins)):
        time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.when))
    statuses = PinStore(layout).status()
    strict([builtins_of(PinJson.of(status)) for status in statuses])


def _share(data: bytes, folder: Path) -> None:
    found = share.parse_share(data, "a.json")
    share.share_text(found)
    for pin in found.pins:
        time.strftime("%Y-%m-%d", time.localtime(pin.when))
        for difference in differences(pin.machine, Machine()):
            str(difference.sentence)
    table = lookup_table(found.pins)
    as_json(table.entries)
    [plain(remark.text) for remark in (*table.left_out, *table.notes)]


def _mega_cache(data: bytes, folder: Path) -> None:
    examined = examine_mega_cache(_at(folder, "mega_cache", data), Layout(folder / "none"))
    strict(builtins_of(MegaCacheJson.of(examined)))


def _code(data: bytes, folder: Path) -> None:
    found = from_file(_at(folder, "code.co", data))
    for one in found if isinstance(found, tuple) else ():
        for arch in ("gfx90a", "gfx950", "gfx1100", "gfx000"):
            known = ResourceUse(amdgpu(arch), one, occupancy(amdgpu(arch), one, 256))
            resource_text.cells(known)
            resource_text.sentence(known)
            strict(builtins_of(ResourcesJson.of(known)))
        choice = Choice("a", "h")
        harmless(resource_text.block([choice], {"h": known}))


def _graph(data: bytes, folder: Path) -> None:
    graph = read_graph_text(data)
    rivals = ("triton_mm-c2", "Cpp-c3", "mm-c4")
    for op, inputs in (("mm", _seeds.GPU_MM), ("flex_attention", _seeds.MM), ("another", "[]")):
        for hash_ in ("mm-c1", "triton_mm-c1", "Cpp-c1"):
            wanted = WantedChoice(op, inputs, hash_, rivals, {"BLOCK_M": "16"}, {"BLOCK_M": "16"})
            may_hold(data, wanted)
            judge(graph, wanted)


def _kernel_source(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    code_hash(text.encode("utf-8", "surrogateescape"))
    for kind in ("triton", "cpp"):
        kernel_config(text, kind)
    fragment_nodes(text)


def _trace_code(data: bytes, folder: Path) -> None:
    for text in TraceCode().read(io.BytesIO(data)):
        read_graph_text(text)


def _journal(data: bytes, folder: Path) -> None:
    journal = Journal(folder, folder / "cache" / "hash")
    journal.path.parent.mkdir(parents=True, exist_ok=True)
    journal.path.write_bytes(data)
    found = journal.read()
    for tuned in tuned_in(found.lines):
        with suppress(ValueError):  # a lone surrogate cannot be written; nor is it ours
            line_of(tuned)
    if found.fold is not None:
        journal.rest(found, found.fold)


def _meta(data: bytes, folder: Path) -> None:
    entry = _at(folder, "ab.json", data)
    entry.with_suffix(".hip").write_bytes(b"")
    entry.with_suffix(".co").write_bytes(b"")
    code_cache.source_of_entry(entry)
    code_cache.compiled(entry)
    from_ptxas(data.decode("latin-1"))


def _filter(data: bytes, folder: Path) -> None:
    """What `run --quiet` takes out of a program's stderr, read in pieces as it reads them."""
    tables = TableFilter()
    for piece in pieces(data):
        for at in range(0, len(piece), CHUNK):
            tables.feed(piece[at : at + CHUNK])
        tables.release()


def _worker(data: bytes, folder: Path) -> None:
    """What a worker that went wrong says."""
    for line in filter(None, data.split(b"\n")):  # a million empty lines take json two seconds
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, Mapping):
            progress = heard_progress({**event, "event": "progress"})
            assert progress is not None
            harmless(progress_text(progress))


_KEPT: dict[str, bytes] = {}


def _seed(kind: str, folder: Path) -> bytes:
    if kind not in _KEPT:
        _KEPT[kind] = next(_seeds._caches(folder))
    return _KEPT[kind]


def _other_note(random: Random, seeds: list[bytes]) -> bytes:
    """A code object with another note, or a damaged one."""
    if random.random() < 0.5:
        return _mutate.mutated(random, seeds)
    kernel = {
        ".name": "a", ".vgpr_count": 9, ".agpr_count": 0, ".sgpr_count": 9,
        ".group_segment_fixed_size": 9, ".private_segment_fixed_size": 0, ".vgpr_spill_count": 0,
        ".sgpr_spill_count": 0, ".max_flat_workgroup_size": 9, ".wavefront_size": 64,
    }  # fmt: skip
    text = _mutate._values(random, json.dumps({"amdhsa.kernels": [kernel]}).encode(), seeds)
    try:
        return _seeds.code_object(json.loads(text))
    except (ValueError, RecursionError, OverflowError, TypeError):
        return _mutate.mutated(random, seeds)


def _with_checksum(random: Random, seeds: list[bytes]) -> bytes:
    data = _mutate.mutated(random, seeds)[4:]
    return zlib.crc32(data).to_bytes(4, "big") + data


READERS = (
    Reader("event log", "events", stream(EventLog)),
    Reader("event log as a file", "events", _events_file),
    Reader("stderr log", "log", stream(StderrLog)),
    Reader("big log", "log", _scan),
    Reader("tailed file", "events", _tail),
    Reader("tailed log", "log", _tail),
    Reader("MM log", "mm log", whole_file(mm_log.parse)),
    Reader("torch trace", "trace", stream(TorchTrace)),
    Reader("profiler trace", "profile", stream(ProfilerTrace)),
    Reader("code in a trace", "trace", _trace_code),
    Reader("autotune cache", "cache", whole_file(cache_file.parse)),
    Reader("autotune cache to edit", "cache", _cache),
    Reader("pins file", "pins", _pins),
    Reader("export of pins", "share", _share),
    Reader("mega-cache", "mega_cache", _mega_cache, _with_checksum),
    Reader("code object", "code", _code, _other_note),
    Reader("compiled graph", "graph", _graph),
    Reader("kernel source", "graph", _kernel_source),
    Reader("journal of timings", "journal", _journal),
    Reader("code cache entry", "meta", _meta),
    Reader("stderr of a program", "log", _filter),
    Reader("worker's words", "events", _worker),
)

"""Whether hostile and long inputs are read in linear time. Prints one JSON object.

    python benchmarks/bench_hostile.py [--only graphs logs] [--runs 3]

Each input is made twice, the second four times as long. The ratio of the processor times that this
process needs for them is about 4 for a linear reader and 16 for a quadratic one. The budget: 8.
Times below 5 ms count as 5 ms, since shorter ones say nothing. `ratios` has the worst input of each
group, `over` the inputs beyond the budget; the exit code is 1 if there are any. Pins in a row are
compared with reading and writing their file as often, with the same budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.cache.journal import tuned_in
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.errors import InputsKeyInvalid
from backend.model.choice import Choice
from backend.model.problem import TuningKey, parse_inputs_key
from backend.model.tuning import Tuning
from backend.pins.graphs.match import WantedChoice, judge, may_hold
from backend.pins.graphs.text import read_graph_text
from backend.pins.store import PinStore
from backend.toolchain.resources import from_file
from rocm_tui.compare.comparison import compare
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.formats.profiler_trace import ProfilerTrace
from rocm_tui.ingest.formats.torch_trace import TorchTrace
from rocm_tui.report.job import report
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import quantity
from rocm_tui.session.query.fields import FieldValues, Known
from rocm_tui.session.query.grammar import LONGEST, parse, read
from rocm_tui.session.query.match import predicate
from tests.campaign._seeds import code_object
from tests.support.compare_lab import log, part
from tests.support.log_lab import read as read_text
from tests.support.profile_lab import event

GROWTH = 4
BUDGET = 8.0
SHORTEST = 0.005
"""Seconds."""

Input = Callable[[int], Callable[[], object]]
"""Makes an input of a given size and returns what reads it."""
Inputs = Iterator[tuple[str, int, Input]]
"""The name of an input, its larger size, and its maker."""

PYTHON = "AsyncCompile()\n  def call(args):\n"
CPP = "cpp_wrapper_src = (\ninductor_entry_impl(\n"
PRINTED = PYTHON + "class a(torch.nn.Module):\n    def forward(self, "
NODE = PYTHON + "class a(torch.nn.Module):\n    b = torch.ops.aten.mm("
KEY = "[('cuda', 'torch.float16', 512, 256, 256, 1, 0), ('cuda', 'torch.float16', 8, 4, 4, 1, 0)]"
PIECES = r"""a|(|[|"| |, |,|0|{|%|:|\t|\n |\n|a: "|a = |extern_kernels.mm(|a: "f32[|torch.ops.
class x(torch.nn.Module):\n|class x(|class x
# Graph fragment:\n|#   %a : x|    A : tl.constexpr = |\nx = async_compile.triton('triton_tem
a = reinterpret_tensor(|assert_size_stride(a, (|a = rand_strided((|a = empty_strided_cpu((
aoti_torch_cpu_|reinterpret_tensor_wrapper(a, 1, b, c, |auto a = |int64_t a[] = {|def triton_tem_a(
cpp_a_micro_gemm |reader.symint(1)  # a|\ndef load_args(reader):\n|\n return |def call(|cpp_a
AsyncCompile()\n|cpp_wrapper_src = (\n|constexpr int64_t M|# rocm-tui choice a for b """
REPEATED = PIECES.replace("\n", "|").replace(r"\n", "\n").replace(r"\t", "\t").split("|")
NUMBERED = (
    "cpp_a{n}_micro_gemm ",
    "def triton_tem_{n}(",
    '    n{n}: "f32[4][1]cpu" = torch.ops.aten.mm.default(n{n}, n1)\n',
    "        assert_size_stride(a{n}, (1,), (1,))\n        extern_kernels.mm(a1, a{n})\n",
)


def graphs() -> Inputs:
    """Compiled graphs of 300 KB in which a piece of their syntax is repeated."""
    for start in (PYTHON, CPP, PRINTED, NODE, NODE + ")\n"):
        for piece in REPEATED:
            yield f"{start[-16:]!r}{piece!r}", 300_000, _repeated_in_graph(start, piece)
        for line in NUMBERED:
            yield f"{start[-16:]!r}{line!r}", 300_000, _numbered_in_graph(start, line)


def _repeated_in_graph(start: str, piece: str) -> Input:
    return lambda size: _graph_reader(start + piece * (size // len(piece)))


def _numbered_in_graph(start: str, line: str) -> Input:
    def make(size: int) -> Callable[[], object]:
        lines = (line.replace("{n}", str(n)) for n in range(size // (len(line) + 4)))
        return _graph_reader(start + "".join(lines))

    return make


def _graph_reader(text: str) -> Callable[[], object]:
    data = text.encode()

    def run() -> None:
        graph = read_graph_text(data)
        for op in ("mm", "flex_attention", "another"):
            wanted = WantedChoice(op, KEY, "triton_mm-c1", ("triton_mm-c2",))
            may_hold(data, wanted)
            judge(graph, wanted)

    return run


def inputs_keys() -> Inputs:
    """Keys of Inductor's cache that are refused."""
    tensor = "[('cpu', 'torch.float32'"
    for name, start, piece, end in (
        ("brackets", "", "[", ""),
        ("tensors", "[", "('cpu', 'f', ", ""),
        ("sizes", tensor, ", 1", ""),
        ("digits", tensor + ", ", "9", ", 1, 0)]"),
        ("underscores", tensor + ", 0)]", "_", "\n"),
    ):
        yield name, 60_000, lambda size, s=start, p=piece, e=end: _refused(s + p * size + e)


def _refused(text: str) -> Callable[[], object]:
    def run() -> None:
        with contextlib.suppress(InputsKeyInvalid):
            parse_inputs_key(text)

    return run


def quantities() -> Inputs:
    """Cells of a table that begin like a number with its unit."""
    for piece in ("~", "1", "1 ", "1.1.1", "1 x"):
        yield repr(piece), 40_000, lambda size, p=piece: lambda: quantity(p * (size // len(p)))


def filters() -> Inputs:
    """Filters as long as they may be, and nine conditions on 5,000 rows."""
    facts = FieldValues(Known({}, 1e6))
    long = Row("long", "long", 1, Tuning("a" * 5000), seen=1e6)
    for start, piece in (("", "("), ("", "!"), ("(", "a|"), ("", "a "), ("op:", "*a"), ("", '"'),
                         ("gain>", "1"), ("op:", ","), ("", "- "), ("", "a:")):  # fmt: skip
        yield (
            repr(start + piece),
            LONGEST,
            lambda size, s=start, p=piece: (
                lambda: predicate(read((s + p * size)[:size]).query, facts)(long)
            ),
        )
    text = "op:mm dtype:bf16 gain>1.2 !pinned !device:gfx942 !rank:3 lead>2% time>1ms (age<2h | a)"
    passes = predicate(parse(text), facts)
    choices = (Choice("triton_mm_1", "triton_mm-a", 2.0), Choice("mm", "mm-b", 3.0))
    tuning = Tuning("mm", dtypes=("torch.bfloat16",) * 2, choices=choices, when=1e6 - 60)
    rows = [Row(str(at), str(at), 1, tuning, seen=1e6) for at in range(5000)]
    yield "5,000 rows", 5000, lambda size: lambda: [passes(row) for row in rows[:size]]


def logs() -> Inputs:
    """Logs of stderr whose tables do not end, are cut off or are mixed."""
    mm = "AUTOTUNE mm(8x4, 4x8)\n"
    texts: dict[str, tuple[int, Callable[[int], str]]] = {
        "heads": (90_000, lambda n: "AUTOTUNE f(" * n),
        "brackets of a head": (1_000_000, lambda n: "AUTOTUNE f" + "(" * n),
        "brackets of heads": (2700, lambda n: (("AUTOTUNE f(" + "(" * 12) * n + "\n") * 16),
        "tables without rows": (20_000, lambda n: mm * n),
        "ranks": (20_000, lambda n: "".join(f"[rank{at}]:{mm}" for at in range(n))),
        "rows of many tables": (20_000, lambda n: mm * 60 + "  mm 0.1 ms 100.0%\n" * n),
        "carriage returns": (1_000_000, lambda n: mm + "\r" * n),
        "escaped line ends": (300_000, lambda n: mm[:-1] + "\\n " * n),
        "config": (200_000, lambda n: "A=1, " * n + " 0.1 ms 100.0%\n"),
        "configs": (
            100_000,
            lambda n: "A=1,\n" * 200 + "A=1, x" * n + " 0.1 ms 100.0% 0.1 ms 100.0%\n",
        ),
        "best config": (200_000, lambda n: "best config selected: " + "A: 1, " * n),
        "functions": (30_000, lambda n: "Triton autotuning for function f,\n" * n),
        "names": (60, lambda n: mm + ("  b" + "a" * 30_000 + "/mm 0.01 ms 100.0%\n") * n),
        "long line": (4_000_000, lambda n: "[" * n + " 1.0 ms " * (n // 10) + "(" * n + "\r" + mm),
    }  # fmt: skip
    for name, (size, text) in texts.items():
        yield name, size, lambda n, text=text: _log_reader(text(n))


def _log_reader(text: str) -> Callable[[], object]:
    return lambda: read_text(text)


def traces() -> Inputs:
    """A torch trace of braces, and a profiler's trace of events that concern no graph."""
    head = b'V1120 10:10:29.070000 6512 x.py:23] {"chromium_event": {}, "has_payload": "x"}\n'

    def ends(size: int) -> Callable[[], object]:
        return lambda: _fed(
            TorchTrace("x"), head + b'\t{"a": "b_template_autotuning",\n' + b"\t}\n" * size
        )

    def begins(size: int) -> Callable[[], object]:
        return lambda: _fed(TorchTrace("x"), head + (b"\t" + b"{" * size + b"\n\t}\n") * 3)

    def events(size: int) -> Callable[[], object]:
        other = json.dumps(event("python_function", "f" * 300, 1.0, 1.0, {"a": "b"})).encode()
        piece = (other + b",\n") * 2500
        start = b'{"schemaVersion": 1, "traceEvents": ['
        return lambda: _fed(ProfilerTrace("/x/trace.json"), start, *[piece] * size)

    yield "closing braces", 100_000, ends
    yield "opening braces", 300_000, begins
    yield "20 MB of events", 20, events


def _fed(reader: TorchTrace | ProfilerTrace, *pieces: bytes) -> None:
    for piece in pieces:
        reader.feed(piece)
    reader.close()


def event_logs(folder: Path) -> Inputs:
    """Event logs whose lines are not ours."""
    for line in (b"\n", b"x\n"):
        yield repr(line), 300_000, lambda size, line=line: _event_log(folder, line * size)


def _event_log(folder: Path, data: bytes) -> Callable[[], object]:
    path = folder / "log.jsonl"

    def run() -> None:
        path.write_bytes(data)
        read_log(path)
        EventLog("a").feed(data)
        tuned_in(data)

    return run


def code_objects(folder: Path) -> Inputs:
    """Code objects whose headers, and bundles whose entries, claim the rest of the file."""
    kernel = {".name": "a", ".vgpr_count": 9, ".wavefront_size": 64}
    elf = code_object({"amdhsa.kernels": [kernel] * 500})

    def headers(size: int) -> Callable[[], object]:
        program = struct.pack("<IIQQQQ", 4, 4, 0, 0, 0, 1 << 40) + bytes(16)
        data = bytearray(elf)
        data[64:] = program * size + bytes(1000 * size)
        struct.pack_into("<HH", data, 54, 56, size)
        return _code_object(folder, bytes(data))

    def bundles(size: int) -> Callable[[], object]:
        triple = b"hipv4-amdgcn-amd-amdhsa--gfx942"
        entry = struct.pack("<QQQ", 0, 1 << 40, len(triple)) + triple
        bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 200) + entry * 4
        return _code_object(folder, b"\x7fELF" + bytes(60) + bundle * size + elf)

    yield "headers", 200, headers
    yield "bundles", 4000, bundles


def _code_object(folder: Path, data: bytes) -> Callable[[], object]:
    path = folder / "a.so"

    def run() -> None:
        path.write_bytes(data)
        from_file(path)

    return run


def comparisons() -> Inputs:
    """Tunings of one shape with strides of their own, compared with those that have no dtypes."""

    def make(size: int) -> Callable[[], object]:
        one = log(1, {"bmm": 1.0, "triton_bmm_1": 2.0})
        sample = part(one)
        strides = [((n + 2, n + 1, 1), (1, 1, 1)) for n in range(size)]
        sides = []
        for dtypes in (one.dtypes, ()):
            tunings = [replace(one, strides=each, dtypes=dtypes) for each in strides]
            rows = [replace(sample.rows[0], key=str(n), tuning=t) for n, t in enumerate(tunings)]
            sides.append(replace(sample, rows=tuple(rows)))
        ours, theirs = sides

        def run() -> None:
            compare(ours, theirs)
            report(ours)

        return run

    yield "one shape", 6000, make


def pins() -> float:
    """300 pins in a row, each of which writes the whole file: the ratio of their processor time to
    that of reading and writing the file as often."""
    ours = plain = 0.0
    with tempfile.TemporaryDirectory() as name:
        layout = Layout(Path(name))
        store = PinStore(layout)
        for n in range(300):
            key = TuningKey("mm", f"[{n}]", "highest")
            begin = time.process_time()
            store.pin("s", key, "c", config={"K": "v"}, wait=True)
            pinned = time.process_time()
            document = json.loads(layout.pins.read_bytes())
            Path(name, "plain.json").write_text(json.dumps(document))
            ours += pinned - begin
            plain += time.process_time() - pinned
    return round(ours / plain, 1)


def seconds(run: Callable[[], object], runs: int) -> float:
    """The least processor time of several runs."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def growth(inputs: Inputs, runs: int) -> dict[str, float]:
    """By input, how much longer four times as much takes."""
    found = {}
    for what, size, make in inputs:
        short, long = (seconds(make(n), runs) for n in (size // GROWTH, size))
        found[what] = round(max(long, SHORTEST) / max(short, SHORTEST), 1)
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        groups: dict[str, Callable[[], Inputs]] = {
            "graphs": graphs,
            "inputs_keys": inputs_keys,
            "quantities": quantities,
            "filters": filters,
            "logs": logs,
            "traces": traces,
            "event_logs": lambda: event_logs(folder),
            "code_objects": lambda: code_objects(folder),
            "comparisons": comparisons,
        }
        parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
        parser.add_argument("--only", nargs="+", choices=[*groups, "pins"])
        parser.add_argument("--runs", type=int, default=3)
        args = parser.parse_args()
        ratios: dict[str, float] = {}
        over: dict[str, float] = {}
        for group in args.only or [*groups, "pins"]:
            found = {group: pins()} if group == "pins" else growth(groups[group](), args.runs)
            ratios[group] = max(found.values())
            over |= {f"{group}: {what}": ratio for what, ratio in found.items() if ratio > BUDGET}
    print(json.dumps({"ratios": ratios, "budget": BUDGET, "over": over}, indent=1))
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())

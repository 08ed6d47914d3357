"""Good inputs to start from: what the program's own writers write, small files of the tests, and
the files of a folder that a person names."""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgpack

from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    GraphCalled,
    GraphCompiled,
    GraphTried,
    SessionEnded,
    SessionStarted,
    TuningMeasured,
    TuningStarted,
)
from backend.model.graph import Graph, Swap, Trial, TrialArm, TuningUse
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.store import PinStore
from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from backend.wire.events import encode as event_line
from rocm_tui.ingest.formats.registry import sniff
from tests.support.graph_samples import samples
from tests.support.profile_lab import training

FOLDER = "ROCM_TUI_CORPUS"
"""The variable that names a folder of real logs, caches and traces."""
PIECE = 8 << 10

MM = "[('cpu', 'torch.float32', 20, 40, 40, 1, 0), ('cpu', 'torch.float32', 40, 24, 24, 1, 0)]"
GPU_MM = "[('cuda', 'torch.float16', 4, 8, 8, 1, 0), ('cuda', 'torch.float16', 8, 4, 4, 1, 0)]"
TIMES = {"mm-c1": 0.5, "triton_mm-c2": 0.25, "Cpp-c3": 0.75, "mm-c4": math.inf}
LOG = b"""AUTOTUNE mm(20x40, 40x24)
strides: [40, 1], [24, 1]
dtypes: torch.float32, torch.float32
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16, ACC_TYPE='tl.float32', num_warps=4
  mm 0.0200 ms 50.0%
  triton_mm_2 inf ms 0.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 0.5 seconds precompiling for 3 choices
Autotune Choices Stats:
{"num_choices": 3, "num_triton_choices": 2, "best_kernel": "triton_mm_1", "best_time": 0.01}
[rank1]:AUTOTUNE addmm(20x24, 20x40, 40x24)
[rank1]:  bias_addmm 0.0100 ms 100.0%
[rank1]:  addmm 0.0102 ms 98.0%
[rank1]:SubProcess AUTOTUNE takes 1.0 seconds
"""


def seeds(folder: Path) -> dict[str, list[bytes]]:
    """By what reads them."""
    found = {
        "events": [_events(), _events("cuda", GPU_MM)],
        "cache": list(_caches(folder)),
        "log": [LOG],
        "mm log": [_mm_log()],
        "trace": [_trace()],
        "profile": [training(2)],
        "code": list(_code_objects()),
        "graph": [sample.data for sample in samples() if len(sample.data) < 40_000],
        "share": [_share()],
        "mega_cache": [_mega_cache()],
        "pins": [_pins(folder)],
        "journal": [_journal(folder)],
        "meta": [_meta()],
    }
    kinds = {
        "stderr log": "log",
        "event log": "events",
        "autotune cache": "cache",
        "mm log": "mm log",
        "torch trace": "trace",
        "profiler trace": "profile",
    }
    for data in _corpus():
        kind = kinds.get(sniff(data))
        if kind:
            found[kind].append(data)
    return found


def _corpus() -> Iterator[bytes]:
    """Of each file its first bytes, and some from its middle."""
    root = os.environ.get(FOLDER)
    for path in sorted(Path(root).rglob("*")) if root else ():
        if path.is_file():
            with path.open("rb") as stream:
                yield stream.read(PIECE)
                stream.seek(path.stat().st_size // 2)
                yield stream.read(PIECE)


def _events(device: str = "cpu", inputs: str = MM) -> bytes:
    shapes, strides = ((20, 40), (40, 24)), ((40, 1), (24, 1))
    choices = (
        Choice("mm", "mm-c1"),
        Choice("triton_mm_1", "triton_mm-c2", description="BLOCK_M=16, num_warps=4"),
        Choice("cpp_1", "Cpp-c3"),
    )
    told = MeasuredChoice("mm-c1", 0.5, 0.4, 0.6, 0.01, 9, 1.0, 1.0, 1.0, "faster", "mm")
    slower = MeasuredChoice("triton_mm-c2", 0.7, 0.6, 0.8, 0.01, 9, 1.4, 1.3, 1.5, "slower")
    measured = Measurement(
        "mm", inputs, "highest", 3e8, (told, slower), (Choice("a", "Cpp-c3", failed=True),), 9, 1.5
    )
    session = Session(
        "abc", host="gpu1", pid=7, rank=1, argv=("train.py",), torch="2.13.0", device=device,
        arch="gfx942", compute_units=304, started=1.7e9, backends=("ATEN", "TRITON"), threads=8,
    )  # fmt: skip
    written: list[Event] = [SessionStarted(session)]
    for n in (1, 2):
        written += [
            TuningStarted(
                n, 1.7e9, "mm", inputs, "highest", shapes, strides, ("torch.float32",) * 2, device,
                choices,
            ),
            ChoiceCompiled(n, "triton_mm-c2", 0.5),
            ChoiceTimed(n, "mm-c1", 0.5),
            ChoiceTimed(n, "triton_mm-c2", 0.25),
            ChoiceFailed(n, "Cpp-c3", "benchmark", "no room"),
            ChoiceSelected(n, 1.7e9, "triton_mm-c2", "timing", 1.0, 0.5),
        ]  # fmt: skip
    use = TuningUse("mm", inputs, "highest", 2, "mm-c1")
    graph = Graph("abc1234", "forward", "fkey", "Block.forward", device, 9, (use,), captured=True)
    swap = Swap("mm", inputs, "highest", "triton_mm-c2", "triton_mm_1")
    arms = (
        TrialArm((), 10.0, 9.9, 10.1, 1.0, 1.0, 1.0, "tied", 30, 5),
        TrialArm((swap,), 9.0, 8.9, 9.1, 0.9, 0.89, 0.91, "faster", 30, 4, ("a",), ("b",), 1e-6),
    )
    written += [
        TuningMeasured(measured),
        GraphCompiled(1, 1.7e9, graph),
        GraphCalled(1, 1.7e9, 100, 9, 10.0, "device"),
        GraphTried(Trial("abc1234", 1.7e9, arms, 30, 3.0, trouble=("busy",))),
        SessionEnded(1.8e9),
    ]
    return b"".join(event_line(event).encode() + b"\n" for event in written)


def _caches(folder: Path) -> Iterator[bytes]:
    system = {"device": {"name": "gfx942"}, "version": {"triton": "3.6"}, "hash": "x"}
    cache = {"mm": {MM: {"highest": TIMES, "high": TIMES}}, "bmm": {GPU_MM: {"highest": TIMES}}}
    yield json.dumps({"system": system, "cache": cache}).encode()
    yield json.dumps(
        {"system": system, "cache": {"mm": {MM: {"highest": TIMES}}}}, indent=4
    ).encode()


def _mm_log() -> bytes:
    triton = {"type": "triton", "time": 0.5, "BLOCK_M": 64, "num_warps": 4}
    shape = "[4, 16, 64, 32]"
    return json.dumps(
        [
            {"(64, 32, 16)": [{"type": "cublas", "time": 0.25}, triton, None], "kernel_type": "mm"},
            {"invoke": "(1, 2, 3)"},
            {"input_shape": "[1, 3, 224, 224]", "weight_shape": "[64, 3, 7, 7]",
             "choices": [{"time": 0.5, "BLOCK_M": 32}], "kernel_type": "convolution"},
            {"query_shape": shape, "key_shape": shape, "value_shape": shape, "choices": [triton],
             "kernel_type": "backward"},
        ]
    ).encode()  # fmt: skip


def _trace() -> bytes:
    head = 'V1120 10:10:29.070000 6512 torch/a.py:2350] {"chromium_event": {}, "rank": 1, '
    head += '"has_payload": "0123456789abcdef0123456789abcdef"}\n'
    stats = {"num_choices": 3, "best_kernel": "triton_mm_1", "best_time": 0.01}
    text = ""
    for phase, at in (("B", 1e6), ("E", 2e6)):
        for name in ("mm_template_precompiling", "mm_template_autotuning"):
            args = {
                "input_sizes": "[20, 40] [40, 24]",
                "autotune_strings": "AUTOTUNE mm(20x40, 40x24)",
                "autotune_choices_stats": json.dumps(stats),
                "autotune_shape": "20x40, 40x24",
                "autotune_strides": "[40, 1], [24, 1]",
                "autotune_dtypes": "torch.float32, torch.float32",
            }
            event = {"name": name, "ts": at, "ph": phase, "args": args, "pid": 0, "tid": 0}
            text += head + "".join(
                f"\t{line}\n" for line in json.dumps(event, indent=0).split("\n")
            )
    code = head.replace('"chromium_event": {}', '"inductor_output_code": {}')
    return (text + code + "\tdef call(args):\n\t  extern_kernels.mm(a, b)\n").encode()


def _share() -> bytes:
    gpu = Machine("gfx942", 304, "MI300X", "2.13.0+rocm7.1", "3.6.0", "7.1", None, "cafe", "gpu7")
    timings: Mapping[str, Mapping[str, float]] = {"highest": TIMES}
    pins = tuple(
        SharedPin(op, GPU_MM, "highest", "triton_mm-c2", "triton_mm_3", machine,
                  {"BLOCK_M": "64", "ACC_TYPE": "'tl.float32'", "num_warps": "4"}, timings,
                  "cuda", "jane@gpu7", 1.7e9, "steadier")
        for op, machine in (("mm", gpu), ("addmm", Machine()))
    )  # fmt: skip
    return share_text(PinExport(pins, "jane@gpu7", 1.7e9)).encode()


def _pins(folder: Path) -> bytes:
    layout = Layout(folder / "seed")
    layout.autotune.mkdir(parents=True)
    (layout.autotune / "hash").write_bytes(next(_caches(folder)))
    store = PinStore(layout)
    store.pin(None, TuningKey("bmm", GPU_MM, "highest"), "mm-c1")
    store.unpin(TuningKey("bmm", GPU_MM, "highest"))
    store.pin(None, TuningKey("mm", MM, "highest"), "mm-c1", label="mm", note="steady")
    return layout.pins.read_bytes()


def _journal(folder: Path) -> bytes:
    root = folder / "journal"
    (root / "cache").mkdir(parents=True)
    journal = Journal(root, root / "cache" / "hash")
    for op in ("mm", "bmm"):
        journal.append(line_of(Tuned(op, MM, "highest", TIMES, 1.7e9)))
    fold = {"journal": "ab", "length": 9, "before": [1, 2, 3], "after": [1, 2, 4]}
    header, rest = journal.path.read_bytes().split(b"\n", 1)
    return json.dumps({**json.loads(header), "fold": fold}).encode() + b"\n" + rest


def _meta() -> bytes:
    """What the code cache keeps beside a kernel."""
    return json.dumps(
        {"target": "amdgpu:gfx942", "sha256": "0" * 64, "command": "clang", "seconds": 1.5,
         "log": "Compiling entry function 'a' for 'sm_90'\nUsed 8 registers, 4 bytes smem"}
    ).encode()  # fmt: skip


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _text(value: str) -> bytes:
    data = base64.b64encode(value.encode())
    return _number(len(data)) + data


def _mega_cache() -> bytes:
    graph = samples()[0].data[:3000]
    body = _number(1) + _text("inductor") + _number(2)
    for key in ("fabc", "fdef"):
        body += _text(key) + _number(len(graph)) + graph
    body += _text("autotune") + _number(1) + _text("ab/cdefgh.best_config") + _number(2) + b"{}"
    return zlib.crc32(body).to_bytes(4, "big") + body


def _code_objects() -> Iterator[bytes]:
    kernel = {
        ".name": "rocm_gemm", ".vgpr_count": 128, ".agpr_count": 64, ".sgpr_count": 30,
        ".group_segment_fixed_size": 32768, ".private_segment_fixed_size": 0,
        ".vgpr_spill_count": 0, ".sgpr_spill_count": 0, ".max_flat_workgroup_size": 256,
        ".wavefront_size": 64,
    }  # fmt: skip
    elf = code_object({"amdhsa.kernels": [kernel, {**kernel, ".name": "rocm_gemm_reduce_parts"}]})
    yield elf
    triple = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 1)
    begin = len(head) + 24 + len(triple)
    yield (
        b"\x7fELF"
        + bytes(60)
        + head
        + struct.pack("<QQQ", begin, len(elf), len(triple))
        + triple
        + elf
    )


def code_object(metadata: object) -> bytes:
    """The least of an ELF file for an AMD GPU that has a note with `metadata`."""
    note: bytes = msgpack.packb(metadata)
    padded = note + bytes(-len(note) % 4)
    segment = struct.pack("<III", 7, len(note), 32) + b"AMDGPU\0\0" + padded
    head = bytearray(64)
    head[:6], head[18:20] = b"\x7fELF\x02\x01", (224).to_bytes(2, "little")
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HH", head, 54, 56, 1)
    program = struct.pack("<IIQQQQ", 4, 4, 120, 120, 120, len(segment)) + bytes(16)
    return bytes(head) + program + segment

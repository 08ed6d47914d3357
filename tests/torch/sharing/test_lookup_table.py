"""Pins as Inductor's lookup table: what it can hold, and what PyTorch's own code reads of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, SessionStarted, TuningStarted
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.store import PinStore
from backend.sharing.lookup_table import ATEN, TRITON, lookup_table, value_of
from backend.sharing.share import Machine, SharedPin
from tests.support.torch_models import tui

GPU = "gfx942:sramecc+:xnack-"
MACHINE = Machine(arch=GPU, hip="7.1.0", device="AMD Instinct MI300X", compute_units=304)
A = "('cuda', 'torch.float16', 64, 128, 128, 1, 0)"
B = "('cuda', 'torch.float16', 128, 96, 1, 128, 0)"
BIAS = "('cuda', 'torch.float16', 64, 96, 0, 1, 0)"
BATCHED = (
    "[('cuda', 'torch.bfloat16', 4, 64, 128, 8192, 128, 1, 0), "
    "('cuda', 'torch.bfloat16', 4, 128, 96, 12288, 96, 1, 0)]"
)
DESCRIPTION = (
    "ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=64, BLOCK_N=32, EVEN_K=True, "
    "GROUP_M=8, USE_FAST_ACCUM=False, kpack=2, matrix_instr_nonkdim=16, waves_per_eu=0, "
    "num_stages=2, num_warps=4"
)
"""As torch 2.13 prints a Triton choice on ROCm."""
VALUES = {
    "ACC_TYPE": "tl.float32",
    "BLOCK_K": 32,
    "BLOCK_M": 64,
    "BLOCK_N": 32,
    "EVEN_K": True,
    "GROUP_M": 8,
    "USE_FAST_ACCUM": False,
    "kpack": 2,
    "matrix_instr_nonkdim": 16,
    "waves_per_eu": 0,
    "num_stages": 2,
    "num_warps": 4,
}
TRITON_HASH, ADDMM_HASH = "triton_mm-cabc", "addmm-alpha=1-beta=1-cdef"
PIN = SharedPin(
    op="mm",
    inputs=f"[{A}, {B}]",
    precision="highest",
    hash=TRITON_HASH,
    label="triton_mm_3",
    machine=MACHINE,
    config=Choice(description=DESCRIPTION).config,
)


def entries(pin: SharedPin) -> dict[str, Any]:
    return dict(lookup_table([pin]).entries)


def reason(pin: SharedPin) -> str:
    table = lookup_table([pin])
    assert not table.entries and not table.pins
    (remark,) = table.left_out
    return remark.text


def test_the_form_of_the_table() -> None:
    key = f"{GPU}+((torch.float16, [64, 128], [128, 1]), (torch.float16, [128, 96], [1, 128]))+mm"
    assert entries(PIN) == {key: [{"template_id": "triton::mm", **VALUES}]}
    assert entries(replace(PIN, hash="mm-cxyz", config={})) == {key: [{"template_id": "aten::mm"}]}
    cuda = Machine(arch="sm_90", cuda="13.0", device="NVIDIA H200")
    assert list(entries(replace(PIN, machine=cuda))) == [key.replace(GPU, "NVIDIA H200")]


def test_scalars_come_from_the_hashes_of_the_rivals() -> None:
    inputs = f"[{BIAS}, {A}, {B}]"
    timings = {"highest": {TRITON_HASH: 0.1, ADDMM_HASH: 0.2, "bias_addmm-alpha=1-beta=1-c1": 0.2}}
    table = lookup_table([replace(PIN, op="addmm", inputs=inputs, timings=timings)])
    (key,) = table.entries
    assert key.startswith(f"{GPU}+((torch.float16, [64, 96], [0, 1]), ")
    assert key.endswith("+alpha=1&beta=1+addmm")
    (note,) = table.notes
    assert "ATen's choices of addmm apart" in note.text

    odd = {"highest": {TRITON_HASH: 0.1, "addmm-alpha=-0.5-beta=1e-05-cdef": 0.2}}
    (key,) = entries(replace(PIN, op="addmm", inputs=inputs, timings=odd))
    assert key.endswith("+alpha=-0.5&beta=1e-05+addmm")
    assert "not known" in reason(replace(PIN, op="addmm", inputs=inputs))
    both = {"highest": {**timings["highest"], **odd["highest"]}}
    assert "two values" in reason(replace(PIN, op="addmm", inputs=inputs, timings=both))


def test_aten_is_asked_for_with_the_bias_as_it_was() -> None:
    pin = replace(PIN, op="addmm", inputs=f"[{BIAS}, {A}, {B}]", hash=ADDMM_HASH, config={})
    found = entries(pin)
    assert [re.search(r"float16, (.*?)\)", key)[1] for key in found] == [  # type: ignore[index]
        "[64, 96], [0, 1]",
        "[96], [1]",
        "[1, 96], [96, 1]",
    ]
    assert set(map(str, found.values())) == {"[{'template_id': 'aten::addmm'}]"}
    assert entries(replace(pin, hash="bias_addmm-alpha=1-beta=1-c1")).keys() == found.keys()
    full = pin.inputs.replace("64, 96, 0, 1", "64, 96, 96, 1")
    assert len(entries(replace(pin, inputs=full))) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"op": "packed_linear"}, "does not ask the table for packed_linear"),
        ({"op": "convolution", "hash": "triton_convolution2d-c1"}, "does not ask"),
        ({"inputs": PIN.inputs.replace("cuda", "cpu")}, "GPUs only"),
        ({"inputs": PIN.inputs + "_64"}, "ends in _64"),
        ({"inputs": PIN.inputs.replace("128, 1, 0)", "128, 1, 256)")}, "does not begin"),
        ({"inputs": "[nonsense"}, "not an inputs key"),
        ({"machine": Machine()}, "GPU that it was tuned on is not known"),
        ({"hash": "CppMicroGemmFP32Vec-c1"}, "a C++ template"),
        ({"hash": "ck_gemm_template-c1"}, "a Composable Kernel"),
        ({"hash": "cutlass_gemm-c1"}, "a CUTLASS kernel"),
        ({"hash": "decompose_k_mm_4_split-c1"}, "a decomposition"),
        ({"hash": "rocm_gemm-c1"}, "a kernel of ours"),
        ({"hash": "rocm_triton-c1"}, "a kernel of ours"),
        ({"hash": "triton_mm_persistent_tma-c1"}, "parameters that no log tells"),
        ({"hash": "triton_bmm-c1"}, "parameters that no log tells"),
        ({"hash": "triton_mm_persistent-c1"}, "no NUM_SMS"),
        ({"hash": "mm_dtype-out_dtype=torch.float32-c1"}, "arguments that the table would drop"),
        ({"op": "scaled_mm", "hash": "_scaled_mm-out_dtype=1-c1"}, "would drop"),
        ({"hash": "contiguous_mm-[64]"}, "would drop"),
        ({"config": {}}, "is not known: no session or log here tells it"),
        ({"config": {"BLOCK_M": "64", "num_warps": "4"}}, "no ACC_TYPE, BLOCK_K, BLOCK_N, EVEN_K"),
        ({"config": {**PIN.config, "BLOCK_M": "__import__('os')"}}, "the value __import__"),
        ({"config": {**PIN.config, "BLOCK_M": "s0"}}, "the value s0"),
    ],
)
def test_what_it_cannot_hold_is_named(change: dict[str, Any], why: str) -> None:
    assert why in reason(replace(PIN, **change))


def test_values() -> None:
    texts = ["-1", "64", "True", "None", "'tl.float32'"]
    assert [value_of(text) for text in texts] == [-1, 64, True, None, "tl.float32"]


def test_of_two_pins_with_one_key_the_later_counts() -> None:
    early = replace(PIN, precision="high", when=1.0, hash="mm-c1", config={})
    table = lookup_table([early, replace(PIN, when=2.0)])
    assert [remark.subject for remark in table.left_out] == [early]
    assert [config["template_id"] for (config,) in table.entries.values()] == ["triton::mm"]
    same = lookup_table([replace(PIN, precision="high"), PIN])
    assert len(same.pins) == 2 and not same.left_out


# What PyTorch reads

SYSTEM = "cafe"
KEYS = {
    "mm": TuningKey("mm", PIN.inputs, "highest"),
    "bmm": TuningKey("bmm", BATCHED, "highest"),
    "addmm": TuningKey("addmm", f"[{BIAS}, {A}, {B}]", "highest"),
    "baddbmm": TuningKey(
        "baddbmm", f"[('cuda', 'torch.bfloat16', 4, 64, 96, 0, 0, 1, 0), {BATCHED[1:]}", "highest"
    ),
}
CHOICES = {
    "mm": [Choice("triton_mm_3", TRITON_HASH, description=DESCRIPTION), Choice("mm", "mm-c1")],
    "bmm": [Choice("bmm", "bmm-c1"), Choice("triton_bmm_1", "triton_bmm-c2")],
    "addmm": [Choice("bias_addmm", "bias_addmm-alpha=1-beta=1-c1"), Choice("addmm", ADDMM_HASH)],
    "baddbmm": [
        Choice("triton_bmm_7", "triton_bmm-c5", description=DESCRIPTION.replace("_M=64", "_M=128")),
        Choice("baddbmm", "baddbmm-alpha=2-beta=0.5-c1"),
    ],
}
"""The first of each is pinned."""


def rocm_cache(root: Path) -> Layout:
    """The cache dir of a machine with an MI300X: its autotune cache, and the session that made it.
    The pins are made by the real store; no file of theirs is written by hand."""
    layout = Layout(root)
    layout.autotune.mkdir(parents=True)
    system = {
        "device": {"name": GPU},
        "version": {"triton": "3.6.0" + "ab" * 32 + "-" + "cd" * 32, "hip": "7.1.25424"},
        "hash": SYSTEM,
    }
    cache = {
        key.op: {key.inputs: {"highest": {c.hash: 1.0 + at for at, c in enumerate(CHOICES[op])}}}
        for op, key in KEYS.items()
    }
    text = json.dumps({"system": system, "cache": cache}, indent=4)
    (layout.autotune / SYSTEM).write_text(text)
    session = Session(
        "s1", "gpu7", 7, torch="2.13.0+rocm7.1", device="AMD Instinct MI300X", arch=GPU,
        compute_units=304, system_hash=SYSTEM, started=1.7e9,
    )  # fmt: skip
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    for n, (op, key) in enumerate(KEYS.items(), 1):
        choices = tuple(CHOICES[op])
        writer.write(
            TuningStarted(n, 1.7e9, op, key.inputs, "highest", (), (), (), "cuda", choices)
        )
        writer.write(ChoiceSelected(n, 1.7e9, choices[-1].hash or "", "timing", 1.0, 1.0))
    writer.close()
    store = PinStore(layout)
    for op, key in KEYS.items():
        chosen = CHOICES[op][0]
        store.pin(SYSTEM, key, chosen.hash or "", chosen.name or "", config=chosen.config)
    return layout


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the command wrote."""
    layout = rocm_cache(tmp_path_factory.mktemp("mi300x") / "inductor")
    path = layout.root.parent / "table.json"
    done = tui(layout.root, "export", "--lookup-table", "-o", str(path), "--json")
    assert len(json.loads(done.stdout)["pins"]) == 4 and not json.loads(done.stdout)["left_out"]
    assert done.stderr.count("\n") == 1 and "Triton's choices of addmm apart" in done.stderr
    return path


class Reader:
    """PyTorch's own lookup over real IR nodes. There is no GPU here: that there is one, and what
    it is called, is the one thing that is made up."""

    def __init__(self, path: Path) -> None:
        from torch._inductor import config
        from torch._inductor.lookup_table import LookupTableChoices

        config.lookup_table.table = json.loads(path.read_text())
        self._choices = LookupTableChoices()

    def read(
        self,
        op: str,
        *inputs: tuple[str, list[int], list[int]],
        device: str = "cuda",
        **scalars: Any,
    ) -> dict[str, Any]:
        import torch
        from torch._inductor import ir
        from torch._inductor.kernel_inputs import MMKernelInputs

        nodes = []
        for at, (dtype, sizes, strides) in enumerate(inputs):
            layout = ir.FixedLayout(torch.device(device, 0), getattr(torch, dtype), sizes, strides)
            buffer = ir.StorageBox(ir.InputBuffer(name=f"arg{at}_1", layout=layout))
            nodes.append(ir.TensorBox(buffer))
        kernel_inputs = MMKernelInputs(nodes, scalars=scalars or None)
        found: dict[str, Any] = self._choices.lookup_template_configs(
            kernel_inputs, op, template_ids(op)
        )
        return found


@contextlib.contextmanager
def gpu_called(name: str) -> Iterator[None]:
    """As if torch saw a GPU of that name."""
    import torch
    from torch._inductor.lookup_table import LookupTableChoices

    properties = SimpleNamespace(gcnArchName=name)
    LookupTableChoices._get_device_key.cache_clear()
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "get_device_properties", lambda index: properties),
    ):
        yield
    LookupTableChoices._get_device_key.cache_clear()


def template_ids(op: str) -> list[str]:
    """What this torch calls the templates of an op."""
    from torch._inductor.kernel import bmm, mm

    return {
        "mm": [mm.aten_mm.uid, mm.mm_template.uid],
        "bmm": [bmm.aten_bmm.uid, bmm.bmm_template.uid],
        "addmm": [mm.aten_addmm.uid, mm.aten_bias_addmm.uid, mm.mm_template.uid],
        "baddbmm": [bmm.aten_baddbmm.uid, bmm.bmm_template.uid],
    }[op]


@pytest.fixture
def reader(exported: Path) -> Iterator[Reader]:
    import torch
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    graph = GraphLowering(torch.fx.symbolic_trace(lambda x: x))
    with (
        V.set_graph_handler(graph),
        config.patch({"lookup_table.table": None}),
        gpu_called(GPU),
    ):
        yield Reader(exported)


MATRICES = ("float16", [64, 128], [128, 1]), ("float16", [128, 96], [1, 128])
BATCHES = ("bfloat16", [4, 64, 128], [8192, 128, 1]), ("bfloat16", [4, 128, 96], [12288, 96, 1])


@pytest.mark.torch
def test_pytorch_reads_the_pinned_configs(reader: Reader) -> None:
    assert reader.read("mm", *MATRICES) == {"triton::mm": [VALUES]}
    assert reader.read("bmm", *BATCHES) == {"aten::bmm": [{}]}
    row, expanded = ("float16", [96], [1]), ("float16", [64, 96], [0, 1])
    for bias in (row, expanded):
        found = reader.read("addmm", bias, *MATRICES, alpha=1, beta=1)
        assert found == {"aten::bias_addmm": [{}]}
    bias = ("bfloat16", [4, 64, 96], [0, 0, 1])
    found = reader.read("baddbmm", bias, *BATCHES, alpha=2, beta=0.5)
    assert found == {"triton::bmm": [{**VALUES, "BLOCK_M": 128}]}


@pytest.mark.torch
def test_pytorch_finds_nothing_for_other_inputs(reader: Reader) -> None:
    a, b = MATRICES
    other_shape = ("float16", [65, 128], [128, 1])
    other_strides = ("float16", [128, 96], [96, 1])
    other_dtype = [("bfloat16", *sizes) for _, *sizes in MATRICES]
    assert reader.read("mm", a, b)
    assert reader.read("mm", other_shape, b) == {}
    assert reader.read("mm", a, other_strides) == {}
    assert reader.read("mm", *other_dtype) == {}
    assert reader.read("bmm", a, b) == {}
    assert reader.read("mm", a, b, device="cpu") == {}
    bias = ("bfloat16", [4, 64, 96], [0, 0, 1])
    assert reader.read("baddbmm", bias, *BATCHES, alpha=1, beta=0.5) == {}
    assert reader.read("baddbmm", bias, *BATCHES) == {}
    with gpu_called("gfx90a:sramecc+:xnack-"):
        assert reader.read("mm", a, b) == {}
    assert reader.read("mm", a, b)


@pytest.mark.torch
def test_the_names_are_those_of_this_torch() -> None:
    """Template ids and extern kernels are looked up by name: each of ours must exist."""
    from torch._inductor.kernel import mm, mm_plus_mm
    from torch._inductor.select_algorithm import ExternKernelChoice, TritonTemplate

    names = {name.removeprefix("triton_") for name in TRITON}
    if not hasattr(mm, "persistent_mm_template"):  # torch 2.11
        names.remove("mm_persistent")
    assert names <= set(TritonTemplate.all_templates)
    externs = {name for names in ATEN.values() for name in names}
    assert externs <= set(ExternKernelChoice._registry)
    assert mm_plus_mm.mm_plus_mm_template.uid == "triton::mm_plus_mm"

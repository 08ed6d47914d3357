"""Pins as Inductor's lookup table: what PyTorch's own code reads of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
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
from backend.sharing.lookup_table import ATEN, TRITON
from tests.support.sharing_lab import (
    ADDMM_HASH,
    BATCHED,
    BIAS,
    DESCRIPTION,
    GPU,
    PIN,
    TRITON_HASH,
    VALUES,
    A,
    B,
)
from tests.support.torch_models import tui

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
    assert done.stderr.count("\n") == 1 and "Triton's choices of addmm separately" in done.stderr
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

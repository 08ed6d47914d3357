"""What a graph is seen to call, where no session tells of the choices: the pin knows its own."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.inductor.hooks.environment import LAUNCH_LOG
from backend.model.choice import Choice
from backend.model.graph import CompileOption
from backend.model.inductor_kernel import TRITON, inputs_of
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.graphs.match import judge
from backend.pins.graphs.text import OwnChoice, read_graph_text
from rocm_tui.actions import verify_program
from rocm_tui.actions.verify_program import (
    EvidenceCollector,
    FirstLaunch,
    LaunchFolder,
    OptionEvidence,
    OwnEvidence,
    PinEvidence,
    ProgramProof,
    TraceFolder,
)
from rocm_tui.cli.verify import ProgramProofJson
from tests.support.graph_samples import FOLDER, Sample, samples
from tests.support.screen_lab import write_cache

_CONSTANT = re.compile(r"(num_\w+)=(\d+),|(\w+) : tl.constexpr = (.+)")


def configs() -> dict[str, dict[str, str]]:
    """What a session would have told, by the end of a choice's hash."""
    modules: dict[str, str] = json.loads((FOLDER / "modules.json").read_text())
    found = {name: _CONSTANT.findall(text) for name, text in modules.items()}
    return {name: {a or c: b or d for a, b, c, d in parts} for name, parts in found.items()}


CONFIGS = configs()


def config_of(hash: str | None) -> dict[str, str]:
    return CONFIGS.get((hash or "").rpartition("-")[2], {})


TEMPLATES = [
    sample
    for sample in samples()
    if config_of(sample.called) and sum(r.startswith("triton") for r in sample.rivals) > 1
]


def pin_of(sample: Sample, hash: str) -> Pin:
    times = {sample.op: dict.fromkeys(sample.rivals, 1.0)}
    return Pin(sample.op, sample.inputs, "", hash, "it", "", times, config=config_of(hash))


@pytest.mark.parametrize("sample", TEMPLATES, ids=lambda sample: sample.name)
def test_the_pin_of_a_template_is_told_by_its_own_config(sample: Sample) -> None:
    assert sample.called is not None
    others = [hash for hash in sample.rivals if config_of(hash) and hash != sample.called]
    pins = [pin_of(sample, hash) for hash in (sample.called, *others)]
    witness = EvidenceCollector(pins, {})
    witness.hear(sample.data)
    right, *wrong = witness.findings
    assert right.answer == "called"
    assert {finding.answer for finding in wrong} <= {"other"}
    unknown = EvidenceCollector([replace(pins[0], config={})], {})
    unknown.hear(sample.data)
    assert unknown.findings[0].answer == "unknown"


def test_a_graph_that_may_hold_an_op_is_unclear() -> None:
    """Nothing tells which choice it calls; that it was tuned is known."""
    sample = TEMPLATES[0]
    pin = replace(pin_of(sample, sample.rivals[0]), op="some_op_of_a_later_torch")
    witness = EvidenceCollector([pin], {})
    assert judge(read_graph_text(sample.data), witness._wanted(pin, pin.hash)) == "unclear"
    witness.hear(sample.data)
    (finding,) = witness.findings
    assert (finding.unknown, finding.untuned, finding.answer) == (1, 0, "unknown")


def test_a_graph_compiled_without_tuning_counts_for_the_pins_that_it_holds() -> None:
    sample = next(s for s in samples() if s.name == "addmm.a")
    pin = pin_of(sample, sample.called or "")
    elsewhere = replace(pin, inputs=re.sub(r"\b\d+\b", "97", pin.inputs))
    witness = EvidenceCollector([pin, elsewhere], {})
    setting = rb"torch\._inductor\.config\.max_autotune\w* = True"
    witness.hear(re.sub(setting, b"import torch._inductor.config", sample.data))
    assert [(f.answer, f.untuned) for f in witness.findings] == [("untuned", 1), ("absent", 0)]


def test_a_graph_for_any_size_that_may_serve_these_leaves_a_call_unclear() -> None:
    sample = next(s for s in samples() if s.name == "mm_dyn.b")
    extern = next(name for name in sample.rivals if name.startswith("mm-"))
    inputs = sample.inputs.replace("512, 1024,", "8, 1024,")
    witness = EvidenceCollector([replace(pin_of(sample, extern), inputs=inputs)], {})
    (finding,) = witness.findings
    finding.called = 1  # by a graph for these sizes
    witness.hear(sample.data)
    assert (finding.answer, finding.graphs) == ("unknown", 2)


def test_a_graph_of_unknown_form_is_unclear_for_the_pins_that_it_may_hold() -> None:
    sample = TEMPLATES[0]
    pin = pin_of(sample, sample.called or "")
    elsewhere = replace(pin, inputs=re.sub(r"\b\d+\b", "97", pin.inputs))
    kernel = Pin(TRITON, inputs_of("add", [4096], "A" * 52), "", "triton_config-1", "it", "", {})
    row = replace(kernel, op="table:tunableop:GemmTunableOp_Half_TN", inputs="tn_320_64_128")
    witness = EvidenceCollector([pin, elsewhere, kernel, row], {})
    witness.hear(sample.data)
    assert [finding.answer for finding in witness.findings] == ["called", *["absent"] * 3]
    witness.hear(b"flex_attention on 2, 8, 512, 64")
    assert witness.unread == 1
    assert [finding.answer for finding in witness.findings] == ["unknown", *["absent"] * 3]


def test_pins_of_one_tuning_for_two_systems_do_not_refute_each_other() -> None:
    """The program runs on one of them; a graph does not name it."""
    first, second = (next(s for s in samples() if s.name == f"mm.{side}") for side in "ab")
    old, new = (
        replace(pin_of(sample, sample.called or ""), system_hash=name)
        for sample, name in ((second, "old"), (first, "new"))
    )
    witness = EvidenceCollector([old, new], {})
    witness.hear(first.data)
    assert [(f.answer, f.graphs) for f in witness.findings] == [("absent", 1), ("called", 1)]
    proof = proof_of(findings=witness.findings)
    assert proof.proved
    elsewhere = "1 of {} the choice pinned for another Triton, ROCm or GPU"
    assert [pin.reason for pin in ProgramProofJson.of(proof).pins] == [
        "not seen: " + elsewhere.format("1 compiled graph calls"),
        "called: it (1 compiled graph)",
    ]
    alone = EvidenceCollector([old], {})
    alone.hear(first.data)
    assert not proof_of(findings=alone.findings).proved and alone.findings[0].answer == "other"
    witness.hear(second.data)  # one of the two calls does not obey its pin
    assert [(f.answer, f.graphs) for f in witness.findings] == [("unknown", 2)] * 2
    assert not proof.proved
    assert {pin.reason for pin in ProgramProofJson.of(proof).pins} == {
        "unclear: " + elsewhere.format("2 compiled graphs calls")
    }


def test_choices_are_known_with_and_without_a_configuration(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    (known,) = verify_program._known_choices(Layout(tmp_path)).values()
    assert set(known) == {"triton_mm-aa", "mm-bb", "triton_mm-cc", "bad-dd"}


def test_a_trace_goes_into_the_folder_that_the_program_names(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "new"):
        with TraceFolder({"TORCH_TRACE": str(folder)}) as trace:
            assert trace.path.parent == folder and trace.path.is_dir()
        assert folder.is_dir()


def test_what_is_no_code_is_counted_as_unread_and_each_text_once() -> None:
    witness = EvidenceCollector([], {})
    for data in (TEMPLATES[0].data, b"no code", b"no code"):
        witness.hear(data)
    assert (witness.graphs, witness.unread) == (2, 1)


def test_the_same_kernel_of_another_build_is_no_launch_of_the_pin() -> None:
    own, other = "A" * 52, "B" * 52
    pin = Pin(TRITON, inputs_of("add", [4096], own), "", "triton_config-1", "it", "", {})
    with LaunchFolder([pin]) as folder:
        told = {"kernel": "add", "key": [4096], "config": pin.hash}
        lines = [json.dumps({**told, "digest": digest}) for digest in (own, other)]
        Path(folder.env({})[LAUNCH_LOG], "1.jsonl").write_text("\n".join(lines))
        found = folder.launches()
    assert [launch.is_of(pin) for launch in found] == [True, False]
    assert all(launch.is_like(pin) for launch in found)


def test_kernels_of_ours_are_listed_by_hash_with_the_name_that_a_session_recorded() -> None:
    sample = TEMPLATES[0]
    own = [OwnChoice("mm", "[2]", "rocm_gemm-2"), OwnChoice("mm", "[1]", "rocm_gemm-1")]
    recorded = {"rocm_gemm-1": Choice("rocm_gemm_7", hash="rocm_gemm-1")}
    known = {TuningKey("mm", "[1]", "highest"): recorded}
    witness = EvidenceCollector([], known)
    for called in (own[:1], own):
        lines = "".join(f"\n        # {choice.text()}" for choice in called)
        begin = b"def call(self, args):"
        witness.hear(sample.data.replace(begin, begin + lines.encode()))
    assert witness.own_evidence() == [
        OwnEvidence("mm", "[1]", "rocm_gemm-1", "rocm_gemm_7", 1),
        OwnEvidence("mm", "[2]", "rocm_gemm-2", Choice(hash="rocm_gemm-2").label, 2),
    ]


def test_an_option_is_counted_by_its_value_in_each_graph() -> None:
    option, other = CompileOption("freezing", "True"), CompileOption("split_reductions", "default")
    witness = EvidenceCollector([], {}, None, {option: ["aaaaaa1"], other: []})
    code = TEMPLATES[0].data
    settings = (b"freezing = True", b"freezing = False", b"freezing = 'True'", b"other = 1")
    for at, line in enumerate(settings):
        head = b"\nimport torch._inductor.config\n"
        witness.hear(code + head + b"torch._inductor.config." + line + b"\n# %d" % at)
    witness.hear(code)
    first, second = witness.options
    assert (first.set, first.default, first.other) == (2, 1, 1)
    assert (first.option, first.confirmed) == (option, ["aaaaaa1"])
    assert (second.set + second.default + second.other, witness.graphs) == (4, 5)


@pytest.mark.parametrize(
    ("option", "device", "named"),
    [
        (CompileOption("epilogue_fusion", "True"), b"cuda", b"epilogue_fusion = False"),
        (CompileOption("layout_optimization", "False"), b"hip", b"layout_optimization = True"),
    ],
)
def test_an_option_that_is_torchs_default_is_set_where_no_value_is_named(
    option: CompileOption, device: bytes, named: bytes
) -> None:
    head = b"\nDeviceProperties(type='%b')\nimport torch._inductor.config\n" % device
    witness = EvidenceCollector([], {}, None, {option: []})
    for line in (b"", b"torch._inductor.config." + named + b"\n"):
        witness.hear(TEMPLATES[0].data + head + line)
    (evidence,) = witness.options
    assert (evidence.set, evidence.default, evidence.other) == (1, 0, 1)


def test_an_option_that_is_the_default_elsewhere_is_not_set_unnamed() -> None:
    witness = EvidenceCollector([], {}, None, {CompileOption("layout_optimization", "False"): []})
    witness.hear(TEMPLATES[0].data + b"\ntype='cuda'\nimport torch._inductor.config\n")
    (evidence,) = witness.options
    assert (evidence.set, evidence.default, evidence.other) == (0, 1, 0)


def finding(**counts: Any) -> PinEvidence:
    return PinEvidence(pin_of(TEMPLATES[0], "x-1"), **counts)


@pytest.mark.parametrize(
    ("counts", "answer", "graphs"),
    [
        ({}, "absent", 0),
        ({"untuned": 2}, "untuned", 0),
        ({"called": 2, "untuned": 1}, "called", 2),
        ({"called": 2, "unknown": 1}, "unknown", 3),
        ({"called": 2, "unknown": 1, "others": Counter(mm=2)}, "other", 5),
    ],
)
def test_what_all_graphs_together_say_of_a_pin(
    counts: dict[str, Any], answer: str, graphs: int
) -> None:
    assert finding(**counts).answer == answer and finding(**counts).graphs == graphs


def proof_of(**change: Any) -> ProgramProof:
    given = {
        "argv": ["python"], "status": 0, "processes": 1, "graphs": 1, "unread": 0, "damaged": 0,
        "full": False, "findings": [], "own": [], "options": [],
    }  # fmt: skip
    return ProgramProof(**{**given, **change})


OWN = OwnEvidence("mm", "[]", "rocm_gemm-1", "rocm_gemm_0", 1)
SET = OptionEvidence(CompileOption("freezing", "True"), [], set=1)
UNSET = OptionEvidence(CompileOption("freezing", "True"), [], default=1)


@pytest.mark.parametrize(
    ("change", "proved"),
    [
        ({"findings": [finding(called=1)]}, True),
        ({"findings": [finding(called=1), finding()]}, False),
        ({}, False),
        ({"own": [OWN]}, True),
        ({"options": [SET]}, True),
        ({"options": [UNSET]}, False),
        ({"own": [OWN], "status": 1}, False),
        ({"own": [OWN], "full": True}, False),
        ({"own": [OWN], "damaged": 1}, False),
        ({"own": [OWN], "unread": 1}, True),
        ({"findings": [finding(called=1)], "lost": 1}, False),
    ],
)
def test_what_proves_that_a_program_calls_what_it_should(
    change: dict[str, Any], proved: bool
) -> None:
    assert proof_of(**change).proved is proved


def test_a_rival_is_named_by_its_label_where_it_is_known() -> None:
    sample = TEMPLATES[0]
    assert sample.called is not None
    other = next(hash for hash in sample.rivals if config_of(hash) and hash != sample.called)
    pin = pin_of(sample, other)
    text = ", ".join(f"{name}={value}" for name, value in config_of(sample.called).items())
    known = Choice("triton_mm_7", sample.called, description=text)
    witness = EvidenceCollector([pin], {pin.key: {sample.called: known}})
    witness.hear(sample.data)
    assert dict(witness.findings[0].others) == {"triton_mm_7": 1}
    unknown = EvidenceCollector([pin], {})
    unknown.hear(sample.data)
    assert sum(unknown.findings[0].others.values()) == 1


def launch(**change: Any) -> FirstLaunch:
    given = {"op": TRITON, "inputs": "add[1]:AAAAAAAA", "config": "c-1", "read": True}
    return FirstLaunch(**{**given, **change})


@pytest.mark.parametrize(
    ("op", "launched", "called", "others", "untuned"),
    [
        (TRITON, launch(), 1, {}, 0),
        (TRITON, launch(read=False), 1, {}, 0),
        (TRITON, launch(config="c-2"), 0, {"two": 1}, 0),
        (TRITON, launch(config="c-3"), 0, {"another choice": 1}, 0),
        (TRITON, launch(inputs="add[1]:BBBBBBBB"), 0, {}, 1),
        (TRITON, launch(inputs="add[2]:AAAAAAAA"), 0, {}, 0),
        ("pointwise", launch(op="pointwise"), 1, {}, 0),
        ("pointwise", launch(op="pointwise", read=False), 0, {}, 1),
        ("pointwise", launch(op="pointwise", config="c-2"), 0, {"two": 1}, 0),
        ("pointwise", launch(op="pointwise", inputs="add[1]:BBBBBBBB"), 0, {}, 0),
    ],
)
def test_what_a_launch_says_of_a_pin(
    op: str, launched: FirstLaunch, called: int, others: dict[str, int], untuned: int
) -> None:
    pin = Pin(op, "add[1]:AAAAAAAA", "", "c-1", "it", "", {})
    witness = EvidenceCollector([pin], {pin.key: {"c-2": Choice("two", "c-2")}})
    witness.hear_launches([launched])
    (found,) = witness.findings
    assert (found.called, dict(found.others), found.untuned) == (called, others, untuned)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b'{"kernel": "add", "key": [1]}',
        b'{"kernel": 1, "key": [], "config": ""}',
        b'{"kernel": "add", "key": 1, "config": "c"}', b'{"op": "mm", "inputs": "[]"}',
    ],
)  # fmt: skip
def test_what_is_no_launch_is_left_out(line: bytes) -> None:
    pin = Pin(TRITON, "add[1]:AAAAAAAA", "", "c-1", "it", "", {})
    good = {"op": "pointwise", "inputs": "gelu[1]", "config": "c", "read": True}
    with LaunchFolder([pin]) as folder:
        path = Path(folder.env({})[LAUNCH_LOG])
        for name in ("1.jsonl", "2.jsonl"):
            (path / name).write_bytes(line + b"\n" + json.dumps(good).encode() + b"\n")
        assert folder.launches() == [FirstLaunch("pointwise", "gelu[1]", "c", True)]
    assert not path.exists()


def test_launches_that_cannot_be_read_are_counted() -> None:
    pin = Pin(TRITON, "add[1]:AAAAAAAA", "", "c-1", "it", "", {})
    good = {"op": "pointwise", "inputs": "gelu[1]", "config": "c", "read": True}
    with LaunchFolder([pin]) as folder:
        path = Path(folder.env({})[LAUNCH_LOG])
        (path / "1.jsonl").mkdir()  # also root cannot read it
        (path / "2.jsonl").write_text(json.dumps(good))
        assert len(folder.launches()) == 1 and folder.unread == 1
        shutil.rmtree(path)
        assert folder.launches() == [] and folder.unread == 1


def test_a_trace_that_cannot_be_opened_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceFolder({"TORCH_TRACE": str(tmp_path)}) as folder:
        for name in ("a.log", "b.log"):
            (folder.path / name).write_bytes(b"")
        stock = Path.open

        def failing(path: Path, *args: Any) -> Any:
            if path.name == "a.log":
                raise OSError(errno.EMFILE, "too many open files")
            return stock(path, *args)

        monkeypatch.setattr(Path, "open", failing)
        proof = verify_program._read_trace(folder, ["x"], 0, EvidenceCollector([], {}))
    assert (proof.processes, proof.lost, proof.complete) == (2, 1, False)


def test_a_program_without_such_pins_runs_as_it_is() -> None:
    with LaunchFolder([pin_of(TEMPLATES[0], "x-1")]) as folder:
        assert folder.env({"A": "b"}) == {"A": "b"} and folder.launches() == []

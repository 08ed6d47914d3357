"""What a graph is seen to call, where no session tells of the choices: the pin knows its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from backend.inductor.hooks.environment import LAUNCH_LOG
from backend.model.inductor_kernel import TRITON, inputs_of
from backend.model.tuning import Pin
from backend.pins.graphs.match import judge
from backend.pins.graphs.text import read_graph_text
from rocm_tui.actions.verify_program import EvidenceCollector, LaunchFolder
from tests.support.graph_samples import FOLDER, Sample, samples

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


def test_a_graph_that_may_hold_an_op_is_not_called_untuned() -> None:
    """Nothing tells which choice it calls; that it was tuned is known."""
    sample = TEMPLATES[0]
    pin = replace(pin_of(sample, sample.rivals[0]), op="some_op_of_a_later_torch")
    witness = EvidenceCollector([pin], {})
    assert judge(read_graph_text(sample.data), witness._wanted(pin, pin.hash)) == "unclear"
    witness.hear(sample.data)
    (finding,) = witness.findings
    assert (finding.untuned, finding.answer) == (0, "absent")


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

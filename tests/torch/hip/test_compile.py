"""Our templates in real compiles on the CPU: offered, pinned, called, right, cached."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from backend.cache.autotune import cache_paths, read_cache
from backend.disk.layout import Layout
from backend.model.events import TuningStarted
from backend.pins.store import PinStore
from backend.templates.reproducer import ReproducerError, rebuild, write
from backend.toolchain.target import cpu
from tests.support.rocm_programs import Ran, last_session, pin_ours, run, selections

pytestmark = pytest.mark.torch

MODELS = """
a, b = torch.randn(4, 37, 64), torch.randn(4, 64, 96)
agree("bmm", lambda a, b: torch.relu(torch.bmm(a.sin(), b)) * 2 + a.sum(), a, b, grad=True,
      tolerance=1e-3)

class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 96), torch.nn.Linear(96, 48)
    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x))) + x.mean()

model = MLP()
agree("mlp", lambda x: model(x), torch.randn(40, 64), grad=True, tolerance=1e-3)
"""


class Story(NamedTuple):
    """A program run cold, again after each of its tunings was pinned to ours, and warm."""

    cache: Path
    cold: Ran
    offered: list[TuningStarted]
    pinned: dict[str, str]
    hashes_in_cache: bytes
    after_pin: Ran
    selected: dict[str, tuple[str, str]]
    warm: Ran
    tunings: int
    """Of the warm process."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    cache = tmp_path_factory.mktemp("compile") / "cache"
    cold = run(MODELS, cache)
    offered = [start for start, _ in last_session(cache)]
    pinned = pin_ours(cache)
    numbers = b"".join(path.read_bytes() for path in cache_paths(Layout(cache)))
    after_pin = run(MODELS, cache)
    selected = selections(cache)
    before = set(Layout(cache).sessions.glob("*.jsonl"))
    warm = run(MODELS, cache)
    logs = set(Layout(cache).sessions.glob("*.jsonl")) - before
    count = sum(log.read_text().count('"tuning_started"') for log in logs)
    return Story(cache, cold, offered, pinned, numbers, after_pin, selected, warm, count)


def test_ours_stand_beside_aten(story: Story) -> None:
    ops = [start.op for start in story.offered]
    assert ops.count("bmm") == 3  # forward, and for each input backward
    assert ops.count("addmm") >= 2  # a layer each; one gradient may be one, too
    assert "mm" in ops
    for start in story.offered:
        names = [choice.label for choice in start.choices]
        assert names[0] == start.op
        assert [name for name in names if name.startswith("rocm_gemm_")]
    assert story.cold.kernels_compiled
    assert "AUTOTUNE bmm(4x37x64, 4x64x96)" in story.cold.stderr
    assert "BLOCK_M=" in story.cold.stderr


def test_pinned_ours_are_called_and_agree(story: Story) -> None:
    # A graph that called ours before the pin was left as it was, and nothing asked for it.
    assert story.selected
    for key, selected in story.selected.items():
        assert selected == (story.pinned[key], "pin")
    assert len(story.after_pin.calls) == len(story.pinned)
    assert "extern_kernels." not in story.after_pin.stderr
    assert "bmm agrees" in story.after_pin.stdout
    assert "mlp agrees" in story.after_pin.stdout
    # The cold run compiled them, but for the four that take what stands behind them into the store.
    assert len(story.after_pin.kernels_compiled) <= 4


def test_sources_can_be_made_again(story: Story, tmp_path: Path) -> None:
    for start in story.offered:
        for choice in start.choices[1:]:
            assert choice.hash
            rendered = rebuild(start.op, start.inputs, choice.description, choice.hash, cpu())
            assert rendered.source.split()[:1] == ["//"]
    with pytest.raises(ReproducerError, match="factors that its inputs do not show"):
        rebuild(start.op, start.inputs, choice.description, "rocm_gemm-0", cpu())
    with pytest.raises(ReproducerError, match="is not a choice of our templates"):
        rebuild("mm", start.inputs, "", "mm-123", cpu())
    write(tmp_path / "kernel", rendered, cpu())


def test_next_process_compiles_nothing(story: Story) -> None:
    assert story.warm.libraries == []
    assert story.tunings == 0  # nothing was even asked
    assert len(story.warm.calls) == len(story.pinned)
    assert "mlp agrees" in story.warm.stdout


def test_pins_are_active_and_leave_the_numbers_alone(story: Story) -> None:
    store = PinStore(Layout(story.cache))
    assert {(status.state, status.detail) for status in store.status()} == {("active", "")}
    # Without our templates torch must find a choice that can be used.
    assert b"Infinity" not in story.hashes_in_cache
    for path in cache_paths(Layout(story.cache)):
        assert read_cache(path)


def test_without_templates_nothing_of_ours(story: Story) -> None:
    plain = run(MODELS, story.cache, {"ROCM_TUI_TEMPLATES": "0"})
    assert plain.calls == []
    assert "extern_kernels.bmm(" in plain.stderr
    assert "mlp agrees" in plain.stdout

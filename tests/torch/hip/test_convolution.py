"""Convolutions by our template in real compiles on the CPU: offered, pinned, called, right."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from backend.cache.autotune import cache_paths, read_cache
from backend.disk.layout import Layout
from backend.model.events import TuningStarted
from backend.pins.store import PinStore
from tests.support.rocm_programs import Ran, last_session, pin_ours, run, selections

pytestmark = pytest.mark.torch

MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.first = conv(6, 16, 3, stride=2, padding=1)
        self.same = conv(16, 16, 3, padding=1, bias=False)
        self.halved = conv(16, 16, 3, padding=1, stride=2, bias=False)
        self.groups = conv(16, 8, (2, 3), dilation=(1, 2), groups=4)
        self.point = conv(8, 12, 1)
    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.point(self.groups(self.halved(x) + self.same(x)[:, :, ::2, ::2]))

model = Net().requires_grad_(False).to(memory_format=torch.channels_last)
x = torch.randn(2, 6, 24, 20)
agree("last", lambda x: model(x),
      x.to(memory_format=torch.channels_last), tolerance=1e-4)
deep = torch.nn.Conv2d(12, 12, 3, padding=1, groups=12).requires_grad_(False)
deep = deep.to(memory_format=torch.channels_last)
scale = torch.randn(12, 1, 1)
agree("depthwise", lambda x: torch.nn.functional.silu(deep(x)) * scale + x,
      torch.randn(2, 12, 7, 9).to(memory_format=torch.channels_last), tolerance=1e-4)
few = torch.nn.Conv2d(3, 5, 3, padding=1).requires_grad_(False).bfloat16()
with torch._inductor.config.patch(layout_optimization=False):
    agree("first", lambda x: torch.relu(few(x)), torch.randn(2, 3, 9, 7).bfloat16(), tolerance=0.1)
"""


class Story(NamedTuple):
    cache: Path
    cold: Ran
    offered: list[TuningStarted]
    pinned: dict[str, str]
    after_pin: Ran
    selected: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The program cold, and again after each of its tunings was pinned to ours."""
    cache = tmp_path_factory.mktemp("convolution") / "cache"
    cold = run(MODEL, cache)
    offered = [start for start, _ in last_session(cache)]
    pinned = pin_ours(cache)
    after_pin = run(MODEL, cache)
    return Story(cache, cold, offered, pinned, after_pin, selections(cache))


def test_ours_stand_beside_aten(story: Story) -> None:
    convolutions = [start for start in story.offered if start.op == "convolution"]
    assert len(convolutions) == 6  # what looks at one point is a product
    offered = sorted([choice.name for choice in start.choices] for start in convolutions)
    plain, groups = ["convolution", "rocm_conv_0"], ["convolution", "rocm_direct_0", "rocm_conv_0"]
    assert offered == [*[plain] * 4, groups, groups]
    assert "last agrees" in story.cold.stdout and "first agrees" in story.cold.stdout
    assert "wrong result" not in story.cold.stderr


def test_pinned_ours_are_called_and_agree(story: Story) -> None:
    calls = [call for call in story.after_pin.calls if call.startswith("rocm_")]
    # Two of the convolutions share a key, and the pin is that of the one that was tuned last.
    assert len(calls) >= 4
    assert story.after_pin.agreed == ["last", "depthwise", "first"]
    assert all(by == "pin" for _, by in story.selected.values())
    assert any(call.startswith("rocm_direct_0") for call in calls)


def test_pins_are_active(story: Story) -> None:
    states = {
        (status.pin.key.op, status.state) for status in PinStore(Layout(story.cache)).status()
    }
    assert states == {("convolution", "active"), ("addmm", "active")}
    for path in cache_paths(Layout(story.cache)):
        assert read_cache(path)

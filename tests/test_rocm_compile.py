"""Our templates in real compiles on the CPU: offered, pinned, called, right, cached."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from backend.events import TuningStarted
from backend.reproducer.folder import ReproducerError, write
from backend.reproducer.rebuild import rebuild
from backend.store.autotune_cache import cache_paths, read_cache
from backend.store.paths import Layout
from backend.store.pins import PinStore
from backend.toolchain.target import cpu
from tests.rocm_programs import Ran, last_session, pin_ours, selections

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
    sessions: int


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    cache = tmp_path_factory.mktemp("compile") / "cache"
    cold = Ran(MODELS, cache)
    offered = [start for start, _ in last_session(cache)]
    pinned = pin_ours(cache)
    numbers = b"".join(path.read_bytes() for path in cache_paths(Layout(cache)))
    after_pin = Ran(MODELS, cache)
    selected = selections(cache)
    before = len(list(Layout(cache).sessions.glob("*.jsonl")))
    warm = Ran(MODELS, cache)
    count = len(list(Layout(cache).sessions.glob("*.jsonl"))) - before
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
    assert "AUTOTUNE bmm(4x37x64, 4x64x96)" in story.cold.done.stderr
    assert "BLOCK_M=" in story.cold.done.stderr


def test_pinned_ours_are_called_and_agree(story: Story) -> None:
    # A graph that called ours before the pin was left as it was, and nothing asked for it.
    assert story.selected
    for key, selected in story.selected.items():
        assert selected == (story.pinned[key], "pin")
    assert len(story.after_pin.calls) == len(story.pinned)
    assert "extern_kernels." not in story.after_pin.done.stderr
    assert "bmm agrees" in story.after_pin.done.stdout
    assert "mlp agrees" in story.after_pin.done.stdout
    assert story.after_pin.kernels_compiled == []  # the cold run compiled them


def test_sources_can_be_made_again(story: Story, tmp_path: Path) -> None:
    for start in story.offered:
        for choice in start.choices[1:]:
            assert choice.hash
            rendered = rebuild(start.op, start.inputs, choice.description, choice.hash, cpu())
            assert rendered.source.split()[:1] == ["//"]
    with pytest.raises(ReproducerError, match="factors that its inputs do not tell"):
        rebuild(start.op, start.inputs, choice.description, "rocm_gemm-0", cpu())
    with pytest.raises(ReproducerError, match="no choice of our templates"):
        rebuild("mm", start.inputs, "", "mm-123", cpu())
    write(tmp_path / "kernel", rendered, cpu())


def test_next_process_compiles_nothing(story: Story) -> None:
    assert story.warm.libraries == []
    assert story.sessions == 0  # nothing was even asked
    assert len(story.warm.calls) == len(story.pinned)
    assert "mlp agrees" in story.warm.done.stdout


def test_pins_are_active_and_leave_the_numbers_alone(story: Story) -> None:
    store = PinStore(Layout(story.cache))
    assert {(status.state, status.detail) for status in store.status()} == {("active", "")}
    # Without our templates torch must find a choice that can be used.
    assert b"Infinity" not in story.hashes_in_cache
    for path in cache_paths(Layout(story.cache)):
        assert read_cache(path)


def test_without_templates_nothing_of_ours(story: Story) -> None:
    plain = Ran(MODELS, story.cache, {"ROCM_TUI_TEMPLATES": "0"})
    assert plain.calls == []
    assert "extern_kernels.bmm(" in plain.done.stderr
    assert "mlp agrees" in plain.done.stdout


LAYOUTS = """
from torch._inductor import select_algorithm

def ours_alone(choices):
    ours = [choice for choice in choices if choice.name.startswith("rocm_")]
    print("offered", len(ours), flush=True)
    return ours[:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)
R = torch.randn
agree("transposed", lambda a, b: a.t() @ b.t(), R(64, 37), R(96, 64))
agree("sliced", lambda a, b: (a + 1)[2:30, 8:40] @ b[8:40], R(37, 64), R(64, 96))
agree("padded", lambda a, b: a[:, :33] @ b[:33, 1:90], R(37, 64), R(64, 96))
agree("bias", lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=2), R(96), R(37, 64), R(64, 96))
agree("full_bias", lambda c, a, b: torch.addmm(c, a, b).sin(), R(37, 96), R(37, 64), R(64, 96))
agree("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b), R(4, 1, 96), R(4, 37, 64), R(4, 64, 96))
agree("same", lambda a: torch.bmm(a, a.transpose(1, 2)), R(4, 37, 64))
agree("one_row", lambda a, b: a @ b, R(1, 64), R(64, 96))
agree("chain", lambda a, b, c: (a @ b).relu() @ c + (a @ b), R(37, 64), R(64, 48), R(48, 48))
for dtype, tolerance in ((torch.float16, 0.02), (torch.bfloat16, 0.2)):
    agree(f"{dtype}", torch.bmm, R(4, 37, 64, dtype=dtype), R(4, 64, 96, dtype=dtype),
          tolerance=tolerance)
frozen = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU()).eval()
with torch.no_grad(), config.patch(freezing=True):
    agree("frozen", frozen, R(32, 64))
"""


def test_layouts_and_dtypes(tmp_path: Path) -> None:
    ran = Ran(LAYOUTS, tmp_path / "cache")
    names = [line.split()[0] for line in ran.done.stdout.splitlines() if " agrees " in line]
    assert len(names) == 12
    assert "offered 0" not in ran.done.stdout
    assert "rocm-tui:" not in ran.done.stderr
    assert len(ran.calls) == 14  # three of them in `chain`
    assert any(" + 4 * (" in call for call in ran.calls)  # a view that begins within its buffer


DYNAMIC = """
from torch._inductor import select_algorithm
select_algorithm.add_preprocessing_fn(
    lambda choices: [c for c in choices if c.name.startswith("rocm_")][:1] or choices)
compiled = torch.compile(lambda a, b: torch.relu(a @ b), dynamic=True)
for m, k, n in ((37, 64, 96), (50, 33, 70), (1000, 8, 5)):
    a, b = torch.randn(m, k), torch.randn(k, n)
    error = (compiled(a, b) - torch.relu(a @ b)).abs().max().item()
    assert error < 1e-4, error
    print("right", m, k, n, flush=True)
print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def test_dynamic_shapes_share_one_kernel(tmp_path: Path) -> None:
    ran = Ran(DYNAMIC, tmp_path / "cache")
    assert ran.done.stdout.count("right") == 3
    assert "graphs 1" in ran.done.stdout
    assert len(ran.calls) == 1 and " s" in ran.calls[0]  # sizes by name
    assert len(ran.kernels_compiled) == 1

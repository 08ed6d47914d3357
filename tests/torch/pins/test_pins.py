"""The pin, shown on stock PyTorch with warm caches: real models, real graphs, real kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.pins.graphs.index import GraphIndex
from backend.pins.graphs.match import WantedChoice
from backend.pins.graphs.text import read_graph_text
from backend.pins.store import PinStore
from tests.support.torch_models import compiled

pytestmark = pytest.mark.torch

MODELS = ["bmm", "transposed", "small_bmm", "bystander", "untuned", "attention", "linear"]

EXTERN = {"bmm": "extern_kernels.bmm(", "linear": "_mkl_linear.default("}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A cache dir in which every model was tuned once, and the code of a second, warm run."""
    root = tmp_path_factory.mktemp("tuned") / "inductor"
    compiled(MODELS, root)
    return root, compiled(MODELS, root).code


@pytest.fixture
def layout(tuned: tuple[Path, dict[str, str]], tmp_path: Path) -> Layout:
    """A copy of it: graphs name no path, so they are found there too."""
    shutil.copytree(tuned[0], tmp_path / "inductor")
    return Layout(tmp_path / "inductor")


def keys(layout: Layout, op: str, sizes: str) -> list[TuningKey]:
    (file,) = read_caches(layout)[0]
    return [key for key in file.entries if key.op == op and sizes in key.inputs]


def timings(layout: Layout, key: TuningKey) -> dict[str, float]:
    (file,) = read_caches(layout)[0]
    return dict(file.entries[key])


def key_of(layout: Layout, model: str) -> TuningKey:
    op, sizes = {
        "bmm": ("bmm", "8, 256, 192, 49152, 192, 1, 0)"),
        "small_bmm": ("bmm", "4, 32, 64, "),
        "linear": ("packed_linear", "64, 256, 256, 1, 0)"),
    }[model]
    (key,) = keys(layout, op, sizes)
    return key


def calls(code: str, model: str, choice: str) -> bool:
    """Whether the generated code of `model` uses the kernel of `choice`."""
    has_template = bool(read_graph_text(("AsyncCompile()\ndef call(\n" + code).encode()).templates)
    has_extern = EXTERN[model] in code
    return (has_template and not has_extern) if kind_of(choice) else has_extern


def named(code: str, root: Path) -> str:
    """The code without the name of the cache dir that it was written to."""
    return code.replace(str(root), "")


def snapshot(layout: Layout) -> dict[str, bytes]:
    return {entry.relative: entry.path.read_bytes() for entry in GraphIndex(layout).live()}


@pytest.mark.parametrize("model", ["bmm", "linear"])
def test_a_pin_is_what_the_next_run_calls(
    tuned: tuple[Path, dict[str, str]], layout: Layout, model: str
) -> None:
    first_code = tuned[1]
    (file,) = read_caches(layout)[0]
    before, graphs_before = file.path.read_bytes(), snapshot(layout)
    key = key_of(layout, model)
    winner, second = sorted(timings(layout, key), key=timings(layout, key).__getitem__)
    assert calls(first_code[model], model, winner)

    store = PinStore(layout)
    plan = store.plan(None, key, second)
    report = store.pin(None, key, second, "#2")
    assert report.status is not None and report.status.state == "active"
    # A frozen linear layer is never put into the graph cache.
    assert len(plan.graphs) == report.moved == {"bmm": 1, "linear": 0}[model]
    left = snapshot(layout)
    assert set(graphs_before) - set(left) == {entry.relative for entry in plan.graphs}
    assert all(graphs_before[name] == content for name, content in left.items())

    run = compiled(MODELS, layout.root)
    assert "AUTOTUNE" not in run.stderr
    assert calls(run.code[model], model, second)
    for other in MODELS:
        if other == "linear":  # its code has addresses in it, and is generated in every run
            assert (EXTERN[other] in run.code[other]) == (
                (EXTERN[other] in first_code[other]) != (model == other)
            )
        elif other != model:
            assert named(run.code[other], layout.root) == named(first_code[other], tuned[0])
    assert [s.state for s in store.reconcile()] == ["active"]
    assert [s.detail for s in store.reconcile()] == [""]
    assert calls(compiled([model], layout.root).code[model], model, second)

    store.unpin(key)
    assert file.path.read_bytes() == before
    after = snapshot(layout)
    assert graphs_before.items() <= after.items()
    # The pinned compile may leave one more companion behind, which names the same graph.
    assert all(name.startswith("aotautograd/") for name in set(after) - set(graphs_before))
    run = compiled([model], layout.root)
    assert calls(run.code[model], model, winner) and "AUTOTUNE" not in run.stderr
    assert file.path.read_bytes() == before


def test_a_graph_that_holds_its_own_code(layout: Layout, tmp_path: Path) -> None:
    """`bundled_autograd_cache` puts the code into the aotautograd entry."""
    names = ["bmm", "bystander"]
    for folder in (layout.fxgraph, layout.aotautograd):
        shutil.rmtree(folder)
    compiled(names, layout.root, bundled=True)
    before = snapshot(layout)
    assert len(before) == 2 and all(name.startswith("aotautograd/") for name in before)
    key = key_of(layout, "bmm")
    winner, second = sorted(timings(layout, key), key=timings(layout, key).__getitem__)
    store = PinStore(layout)
    assert store.pin(None, key, second).moved == 1
    assert len(snapshot(layout)) == 1
    code = compiled(names, layout.root, bundled=True).code
    assert calls(code["bmm"], "bmm", second)
    assert [s.state for s in store.reconcile()] == ["active"]
    store.unpin(key)
    assert snapshot(layout) == before
    assert calls(compiled(names, layout.root, bundled=True).code["bmm"], "bmm", winner)


def test_each_graph_is_found_by_its_ops_alone(layout: Layout) -> None:
    """For every tuning and choice: exactly the graphs that call the op with these inputs."""
    holders: dict[TuningKey, int] = {}
    for key in keys(layout, "bmm", ""):
        times = timings(layout, key)
        verdicts = []
        index = GraphIndex(layout)
        for choice in times:
            wanted = WantedChoice(key.op, key.inputs, choice, tuple(times))
            verdicts.append(index.verdicts(index.live(), wanted))
        for by_extern, by_template in zip(*verdicts, strict=True):
            assert {by_extern, by_template} in ({"absent"}, {"same", "other"})
        holders[key] = sum(verdict != "absent" for verdict in verdicts[0])
    # `small_bmm` and `bystander` share theirs; `untuned` counts nowhere; the attention has two.
    assert sorted(holders.values()) == [1, 1, 1, 1, 2]
    assert len(snapshot(layout)) == 12  # six graphs and their six companions


def test_the_same_sizes_under_another_op_or_dtype_are_another_matter(layout: Layout) -> None:
    key = key_of(layout, "bmm")
    hashes = tuple(timings(layout, key))
    assert hashes
    index = GraphIndex(layout)
    for op, inputs in (
        ("baddbmm", key.inputs),
        ("mm", key.inputs),
        ("bmm", key.inputs.replace("float32", "float16")),
        ("bmm", key.inputs.replace("'cpu'", "'cuda'")),
        ("bmm", key.inputs.replace("32768, 256, 1", "32768, 1, 128")),
    ):
        rivals = tuple(name.replace("bmm-", f"{op}-") for name in hashes)
        for choice in rivals:
            wanted = WantedChoice(op, inputs, choice, rivals)
            assert {*index.verdicts(index.live(), wanted)} == {"absent"}


def test_a_model_compiled_while_pinned_and_one_that_two_pins_concern(layout: Layout) -> None:
    """Both bmm of the attention are pinned to what they did not use; one is taken back."""
    first, second = keys(layout, "bmm", "[('cpu', 'torch.float32', 4, 64, ")
    before = snapshot(layout)
    (file,) = read_caches(layout)[0]
    content = file.path.read_bytes()
    store = PinStore(layout)
    moved = 0
    for key in (first, second):
        times = timings(layout, key)
        moved += store.pin(None, key, max(times, key=times.__getitem__)).moved
    assert moved == 1
    compiled(["attention"], layout.root)
    assert [s.state for s in store.reconcile()] == ["active", "active"]
    store.unpin(first)
    compiled(["attention"], layout.root)
    assert [s.state for s in store.reconcile()] == ["active"]
    store.unpin(second)
    assert file.path.read_bytes() == content
    assert before.items() <= snapshot(layout).items()
    assert store.reconcile() == []


def test_a_graph_written_by_a_compile_that_began_before_the_pin(layout: Layout) -> None:
    """It comes late with the old kernel; reconciling moves it aside again."""
    key = key_of(layout, "bmm")
    times = timings(layout, key)
    store = PinStore(layout)
    late = snapshot(layout)
    store.pin(None, key, max(times, key=times.__getitem__))
    for name, content in late.items():
        path = layout.root / name
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    (status,) = store.status()
    assert status.state == "drifted" and "1 compiled graph" in status.detail
    (status,) = store.reconcile()
    assert status.state == "active" and snapshot(layout).items() < late.items()

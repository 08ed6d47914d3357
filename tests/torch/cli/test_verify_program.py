"""`verify -- CMD`: a person's own program, stock and warm, and what its code calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.graph import CompileOption
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.actions import verify_program
from rocm_tui.actions.improve import GraphSearch
from rocm_tui.ingest.formats.torch_trace import TraceCode
from rocm_tui.render.improve import SearchJson
from rocm_tui.search.options import OPTIONS
from tests.support.documents import document
from tests.support.improve_lab import FIVE_PERCENT, GRAPH, Workers, graph_of, write_graph
from tests.support.search_lab import additive
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

BMM = """
import sys, torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)
"""
LINEAR = """
torch.manual_seed(0)
with torch.no_grad(), config.patch(freezing=True):
    torch.compile(torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.ReLU()).eval())(
        torch.randn(32, 96)
    )
"""


@dataclass(frozen=True)
class Pinned:
    """A cache dir where bmm and packed_linear are pinned to the slower choice. `before` is the
    same cache dir before the pins."""

    cache: Path
    before: Path
    keys: dict[str, TuningKey]
    slow: dict[str, str]
    fast: dict[str, str]

    @property
    def layout(self) -> Layout:
        return Layout(self.cache)


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    folder = tmp_path_factory.mktemp("pinned")
    cache, before = folder / "cache", folder / "before"
    subprocess.run(
        [*warm_python(), "-c", BMM + LINEAR], env=child_env(cache), check=True, timeout=300
    )
    shutil.copytree(cache, before)
    (file,), _ = read_caches(Layout(cache))
    keys = {key.op: key for key in file.entries}
    order = {key.op: sorted(times, key=times.__getitem__) for key, times in file.entries.items()}
    for op, key in keys.items():
        PinStore(Layout(cache)).pin(None, key, order[op][-1])
    slow, fast = ({op: hashes[at] for op, hashes in order.items()} for at in (-1, 0))
    return Pinned(cache, before, keys, slow, fast)


def verify(
    cache: Path,
    *words: str,
    program: str = "",
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """`rocm-tui verify WORDS -- COMMAND`, else a fork that runs `program`."""
    command = command or [*warm_python(), "-c", program]
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", "verify", *words, "--", *command],
        env=child_env(cache, env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )


def answers(done: subprocess.CompletedProcess[str], pinned: Pinned) -> dict[str, Any]:
    """What the JSON says, with the pins by their op. It is the last line."""
    found = document(done.stdout.splitlines()[-1], "verify-program")
    by_id = {pin.id: pin.op for pin in PinStore(pinned.layout).pins()}
    return {**found, "pins": {by_id[pin["id"]]: pin for pin in found["pins"]}}


@pytest.fixture
def graph_put_back(pinned: Pinned) -> Any:
    """A graph that the pin of bmm moved aside is where PyTorch finds it, as an rsync would do."""
    (aside,) = [p for p in (pinned.layout.evicted).rglob("fxgraph/*/*/*") if p.is_file()]
    place = pinned.cache / aside.relative_to(aside.parents[3])
    made = set(place.parent.iterdir()) if place.parent.is_dir() else set()
    for path in made:
        path.rename(pinned.cache / path.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(aside, place)
    yield
    place.unlink()
    for path in made:
        (pinned.cache / path.name).rename(path)


def test_called_and_called_again_with_warm_graphs(pinned: Pinned) -> None:
    for _ in range(2):
        done = verify(pinned.cache, program=BMM + LINEAR)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.count(": called: ") == 2 and "AUTOTUNE" not in done.stderr
    found = answers(verify(pinned.cache, "--json", program=BMM + LINEAR), pinned)
    assert found["program"]["exit_code"] == 0 and found["complete"] and found["unread"] == 0
    assert found["processes"] == 1 and found["graphs"] == 2
    assert all(pin["ok"] and pin["called"] == 1 for pin in found["pins"].values())


def test_a_graph_that_came_back_hides_the_pin(pinned: Pinned, graph_put_back: None) -> None:
    done = verify(pinned.cache, "--json", program=BMM + LINEAR)
    pins = answers(done, pinned)["pins"]
    assert done.returncode == 1 and pins["packed_linear"]["ok"]
    label = pinned.fast["bmm"].rpartition("-")[0]
    assert pins["bmm"]["answer"] == "other" and not pins["bmm"]["called"]
    assert [name.startswith(label) for name in pins["bmm"]["others"]] == [True]
    only = verify(pinned.cache, pins["packed_linear"]["id"], program=BMM + LINEAR)
    assert only.returncode == 0 and only.stdout.count("\n") == 1
    told = verify(pinned.cache, pins["bmm"]["id"], program=BMM)
    assert told.returncode == 1
    assert f"not called: the compiled graph calls {label}" in told.stdout


def test_a_program_that_compiles_something_else(pinned: Pinned) -> None:
    other = BMM.replace("4, 32, 64", "4, 16, 64")
    done = verify(pinned.cache, program=other)
    assert done.returncode == 1
    assert done.stdout.count("not seen: the program compiled nothing with these inputs") == 2
    eager = verify(pinned.cache, program="import torch; torch.ones(2)")
    assert eager.returncode == 1 and eager.stdout.count("the program compiled nothing, or") == 2
    plain = BMM.replace("config.max_autotune = True", "")
    done = verify(pinned.cache, "--json", program=plain)
    assert done.returncode == 1
    assert answers(done, pinned)["pins"]["bmm"]["answer"] == "untuned"


def test_its_streams_and_its_end_are_its_own(pinned: Pinned) -> None:
    said = "print('out', input(), flush=True); print('err', file=sys.stderr); sys.exit(3)"
    done = verify(pinned.cache, program=BMM + said, stdin="in\n")
    first, second, *rest = done.stdout.splitlines()
    assert (done.returncode, first) == (1, "out in")
    assert second == "the program ended with exit code 3" and len(rest) == 2
    assert sum(": called: " in line for line in rest) == 1, "it is told all the same"
    assert done.stderr == "err\n"
    killed = verify(pinned.cache, command=["sh", "-c", "kill -9 $$"])
    assert killed.returncode == 1 and "ended by signal 9, SIGKILL" in killed.stdout
    none = verify(pinned.cache, command=["/no/such/program"])
    assert none.returncode == 1 and none.stderr.count("\n") == 1 and not none.stdout


def test_processes_side_by_side(pinned: Pinned, tmp_path: Path) -> None:
    """Two at once, of which the second has an old cache dir: a container's, say."""
    shutil.copytree(pinned.before, tmp_path / "old")
    script = (
        f'"$@" & first=$!; TORCHINDUCTOR_CACHE_DIR={tmp_path / "old"} "$@" || exit 1; wait $first'
    )
    command = ["sh", "-c", script, "sh", *warm_python(), "-c", BMM]
    done = verify(pinned.cache, "--json", command=command)
    found = answers(done, pinned)
    assert done.returncode == 1 and found["processes"] == 2 and found["complete"]
    bmm = found["pins"]["bmm"]
    assert (bmm["called"], sum(bmm["others"].values())) == (1, 1)
    assert "1 of 2 compiled graphs calls " in bmm["reason"]


def test_what_a_person_traces_and_logs_stays_theirs(pinned: Pinned, tmp_path: Path) -> None:
    """And the trace, cut off in the middle of code, is no proof."""
    theirs = tmp_path / "traces"
    env = {"TORCH_TRACE": str(theirs), "TORCH_LOGS": "output_code"}
    done = verify(pinned.cache, "--json", program=BMM, env=env)
    assert answers(done, pinned)["pins"]["bmm"]["ok"] and "[__output_code]" in done.stderr
    (trace,) = theirs.iterdir()
    with trace.open("rb") as stream:
        (text,) = TraceCode().read(stream)
    assert b"def call(" in text and b"torch.ops.aten.bmm" in text
    data = trace.read_bytes()
    for spoiled in (
        data[: data.index(b"def call(")],
        data.replace(b"def call(", b"def call (", 1),
    ):
        trace.write_bytes(spoiled)
        reader = TraceCode()
        with trace.open("rb") as stream:
            assert list(reader.read(stream)) == [] and reader.damaged == 1


def test_stock_pytorch_without_hooks_and_nothing_left(pinned: Pinned, tmp_path: Path) -> None:
    """A process of its own, started in an environment that has our hooks."""
    from rocm_tui import environment as hook_env

    seen = tmp_path / "seen"
    program = BMM + f"open({str(seen)!r}, 'w').write(str('rocm_tui_autoload' in sys.modules))"
    env = {
        **hook_env.hooked({}, "a-run"),
        "TMPDIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = verify(pinned.cache, "--json", command=command, env=env)
    assert answers(done, pinned)["pins"]["bmm"]["ok"], (done.stdout, done.stderr)
    assert seen.read_text() == "False"
    assert [path.name for path in tmp_path.iterdir() if "trace" in path.name] == []


def test_signals_are_for_the_program(pinned: Pinned, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'exit 7' INT TERM; touch {ready}; while :; do sleep 0.05; done"
    for number in (signal.SIGINT, signal.SIGTERM):
        running = subprocess.Popen(
            [sys.executable, "-m", "rocm_tui", "verify", "--", "sh", "-c", script],
            env=child_env(pinned.cache, {"TMPDIR": str(tmp_path)}),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # no terminal: a signal reaches us alone
        )
        end = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(running.pid, number)
        said, _ = running.communicate(timeout=60)
        assert running.returncode == 1 and "the program ended with exit code 7" in said
        ready.unlink()
    assert list(tmp_path.iterdir()) == []


OPTION = "epilogue_fusion=False"


def test_confirmed_options_are_verified_beside_pins(tmp_path: Path) -> None:
    """The line that `improve` prints sets them; another graph of the program has the default."""
    layout = write_graph(tmp_path / "cache")
    workers = Workers(additive({OPTION: FIVE_PERCENT}))
    search = GraphSearch(workers, layout, graph_of(layout), options=True).go()
    gain = SearchJson.of(search).gain
    assert gain is not None and gain.options == {"epilogue_fusion": "False"}
    program = f"""
import torch
def model(a):
    return torch.relu(a) + 1
{gain.compile_call}(torch.ones(4))
"""
    done = verify(layout.root, program=program)
    assert done.returncode == 0, (done.stdout, done.stderr)
    confirmed = f"{OPTION}, confirmed for graph {GRAPH}"
    assert done.stdout == f"{confirmed}: set in 1 of 1 compiled graph\n"
    other = "torch.compile(lambda a: torch.sin(a) + 2)(torch.ones(4))"
    done = verify(layout.root, program=f"import torch\n{other}")
    assert done.returncode == 1
    assert done.stdout == f"{confirmed}: set in 0 of 1 compiled graph; 1 has torch's default\n"
    run = [sys.executable, "-m", "rocm_tui", "run", "--option", OPTION, "--"]
    python = [sys.executable, "-W", "ignore", "-c", f"import torch\n{other}"]
    done = verify(layout.root, command=[*run, *python])
    assert done.stdout == f"{confirmed}: set in 1 of 1 compiled graph\n", done.stderr
    told = document(verify(layout.root, "--json", program=program + other).stdout, "verify-program")
    (option,) = told["options"]
    assert option == {
        "name": "epilogue_fusion", "value": "False", "graphs": [GRAPH],
        "set": 1, "default": 1, "other": 0,
    }  # fmt: skip


def test_a_confirmed_default_of_torch_is_set_where_the_program_sets_nothing(tmp_path: Path) -> None:
    """As `improve` confirms it for a program that sets another value."""
    default = "epilogue_fusion=True"
    layout = write_graph(tmp_path / "cache")
    workers = Workers(additive({default: FIVE_PERCENT}))
    GraphSearch(workers, layout, graph_of(layout), options=True).go()
    program = "import torch\ntorch.compile(lambda a: torch.sin(a) + 2, options={})(torch.ones(4))"
    confirmed = f"{default}, confirmed for graph {GRAPH}"
    done = verify(layout.root, program=program)
    assert done.stdout == f"{confirmed}: set in 1 of 1 compiled graph\n", done.stderr
    other = program.replace("{}", "{'epilogue_fusion': False}")
    done = verify(layout.root, program=other)
    assert done.stdout == f"{confirmed}: set in 0 of 1 compiled graph; 1 has another value\n"


def test_the_options_that_are_defaults_are_those_of_this_torch() -> None:
    import torch
    from torch._inductor import config

    known = verify_program._ROCM_DEFAULTS if torch.version.hip else verify_program._DEFAULTS
    assert known == {
        CompileOption(name, value)
        for name, value, _ in OPTIONS
        if value == str(config._config[name].default)
    }

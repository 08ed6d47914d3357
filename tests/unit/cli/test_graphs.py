"""`graphs`: the table, one graph with all that is known, its text; as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.sources import known_graphs
from rocm_tui.cli.entry import main
from tests.support.graph_log import use, write_program

TEXT = "import torch\nprint('\x1b]0;title\x07')\n"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    write_program(tmp_path)
    graphs = Layout(tmp_path).graphs
    graphs.mkdir()
    (graphs / "aaaaaa1.py").write_text(TEXT)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], cache: Path, *words: str, code: int = 0) -> str:
    assert main(["graphs", *words, "--cache-dir", str(cache)]) == code
    return capsys.readouterr().out


def test_table(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, first, second = run(capsys, cache).splitlines()
    assert head.split()[:3] == ["id", "kind", "title"]
    cells = ["aaaaaa1", "forward", "Llama.forward", "cpu", "12", "2", "80", "10.00", "ms"]
    assert first.split()[:9] == cells
    assert first.split()[9:] == ["80.0", "%", "yes", "llama.py", "pid", "1"]
    assert second.split()[-6:] == ["20.0", "%", "no", "llama.py", "pid", "1"]


def test_one(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, cache, "b")
    assert "called     50 times by llama.py pid 1, 4.000 ms each (of 5 calls" in text
    lines = text.splitlines()
    assert any(
        line.split()[1:] == [*"mm 24×64×32 f32 1 triton_mm_1 ~90.0 %".split()] for line in lines
    )
    text = run(capsys, cache, "aaa")
    assert str(Layout(cache).graphs / "aaaaaa1.py") in text and "Trials:" in text


def test_text(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, cache, "a", "--text")
    assert text.startswith("import torch\n") and "\x1b" not in text
    run(capsys, cache, "b", "--text", code=1)
    run(capsys, cache, "--text", code=2)
    run(capsys, cache, "c", code=1)


def test_json(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = json.loads(run(capsys, cache, "--json"))["graphs"]
    assert [graph["share"] for graph in graphs] == [0.8, 0.2]
    one = json.loads(run(capsys, cache, "aaaaaa1", "--json"))
    assert one == {"schema": "rocm-tui/graph/1", **graphs[0]}
    assert [(t["count"], t["share"], t["share_by"]) for t in one["tunings"]] == [
        (4, 0.4, "once"),
        (1, 0.2, "measured"),
    ]


def test_no_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path, code=1) == ""
    none = json.loads(run(capsys, tmp_path, "--json", code=1))
    assert none == {"schema": "rocm-tui/graphs/1", "graphs": []}


def test_what_the_search_takes(cache: Path) -> None:
    first, second = known_graphs(Layout(cache))
    assert (first.id, first.share, first.times.calls) == ("aaaaaa1", 0.8, 80)
    assert first.session is not None and first.session.id == "5e551011"
    tuning = first.tunings[use(8).key]
    assert tuning.row is not None and tuning.row.tuning.key == use(8).key
    assert (tuning.share, tuning.use.count) == (0.4, 4)
    assert first.path is not None and second.path is None
    assert len(first.trials) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--option a=1 -- true", "use rocm-tui run --option"),
        ("--options -- true", "--options is for a graph"),
        ("--rounds 3 -- true", "--rounds is for a graph"),
        ("--processes 1 -- true", "--processes is for a graph"),
        ("--device 0 -- true", "--device is for a graph"),
        ("--from x.log -- true", "--from is for a graph"),
        ("--python py -- true", "--python is for a graph"),
        ("aaa --processes 2", "--processes is 1, or 3 or more"),
        ("aaa --step loss", "--step needs a program"),
        ("aaa --skip 2", "--skip needs a program"),
        ("aaa --pairs 3", "--pairs needs a program"),
    ],
)
def test_a_trial_refuses_options_that_it_would_ignore(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trial", *words.split()]) == 2
    assert said in capsys.readouterr().err

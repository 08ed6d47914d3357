"""`show ID CHOICE --source` for a Triton choice: the module that tuning left in the cache dir."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceTimed, SessionEnded, TuningStarted
from backend.model.origin import choice_hash, kernel_hash
from backend.model.session import Session
from backend.templates.operand import Operand
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm, generate
from backend.templates.triton.module_file import write_source
from rocm_tui.cli.entry import main

INPUTS = "[('cpu', 'torch.float32', 20, 40, 40, 1, 0), ('cpu', 'torch.float32', 40, 24, 24, 1, 0)]"
MADE = generate(
    TritonGemm(
        Operand("a", "float32", (20, 40), (40, 1)),
        Operand("b", "float32", (40, 24), (24, 1)),
        Operand("out", "float32", (20, 24), (24, 1)),
    ),
    TritonGemmConfig(32, 32, 32),
    "gfx942",
)
HASH = choice_hash("triton", kernel_hash(MADE.source, "launch", "gfx942"), MADE.description)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A session that timed a Triton choice, whose module lies below the cache dir."""
    layout = Layout(tmp_path / "cache")
    writer = EventWriter(layout, Session("s", host="h", pid=1, started=1.0, device="cpu"))
    choices = (Choice("mm", "mm-1"), Choice("rocm_triton_0", HASH, description=MADE.description))
    shapes = ((20, 40), (40, 24))
    for event in (
        TuningStarted(
            1, 2.0, "mm", INPUTS, "highest", shapes, shapes, ("torch.float32",) * 2, "cpu", choices
        ),
        ChoiceTimed(1, "mm-1", 0.5),
        ChoiceTimed(1, HASH, 0.4),
        SessionEnded(3.0),
    ):
        writer.write(event)
    writer.close()
    write_source("another", "import triton\n", layout.triton)
    write_source(MADE.hash.replace("-", "_"), MADE.source, layout.triton)
    return layout.root


def show(cache: Path, *words: str) -> int:
    return main(["show", *words, "--cache-dir", str(cache)])


def id_of(cache: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["ls", "--cache-dir", str(cache), str(cache)]) == 0
    return capsys.readouterr().out.splitlines()[1].split()[0]


def test_the_module_is_printed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(cache, id_of(cache, capsys), "rocm_triton_0", "--source") == 0
    assert capsys.readouterr().out == MADE.source


def test_a_module_that_is_not_the_choices(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in Layout(cache).triton.glob("rocm_triton*"):
        path.write_text(path.read_text() + "# not what was timed\n")
    assert show(cache, id_of(cache, capsys), "rocm_triton_0", "--source") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"is not in {Layout(cache).triton}" in line and "tune again" in line


def test_no_folder_for_triton(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernel"
    assert show(cache, id_of(cache, capsys), "rocm_triton_0", "--reproducer", str(folder)) == 1
    assert "`--source` prints" in capsys.readouterr().err
    assert not folder.exists()

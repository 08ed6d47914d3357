"""The source of a choice on the screen: its pages, its colours, a search; where there is none."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from backend.cache import code
from backend.cache.code import code_hash
from rocm_tui.cli.entry import main
from rocm_tui.render.kernel import Code
from rocm_tui.render.table import Line
from rocm_tui.session.kernel_source import Language, Stage
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens import source
from rocm_tui.tui.screens.compare import CompareScreen, DiffView
from rocm_tui.tui.screens.source import CodeView, SourceScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import (
    SIZES,
    SYSTEM,
    inputs,
    keys_of,
    panes_of,
    running,
    screen_text,
    typed,
    until,
)
from tests.support.triton_stages import NAME, compiled

CPP = '\n#include <vector>\nextern "C" void kernel(float* a) {\n\ta[0] = 1;  // \x1b[31mred\n}\n'
PYTHON = 'import triton\n\n\ndef launch(x):\n    return "{}", x\n'


def write(root: Path, *choices: str) -> None:
    """A persistent cache with one mm, whose choices are these, the fastest first."""
    times = {hash_: 0.01 * at for at, hash_ in enumerate(choices, 1)}
    path = root / "cache" / SYSTEM
    path.parent.mkdir(parents=True, exist_ok=True)
    cache = {"mm": {inputs(64): {"highest": times}}}
    path.write_text(json.dumps({"system": {}, "cache": cache}))


def module(root: Path, name: str, text: str) -> str:
    path = root / name[1:3] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name.partition(".")[0]


def cpp_choice(root: Path) -> str:
    module(root, "c" + "d" * 51 + ".main.cpp", CPP)
    return f"CppMicroGemmFP32Vec-{code_hash(CPP.encode())}"


async def opened(app: RocmTui, pilot: Pilot[int], has: str) -> SourceScreen:
    await until(pilot, lambda: isinstance(app.screen, SourceScreen))
    await until(pilot, lambda: has in screen_text(app.screen))
    assert isinstance(app.screen, SourceScreen)
    return app.screen


@pytest.mark.parametrize("size", SIZES)
async def test_a_cpp_choice(tmp_path: Path, size: tuple[int, int]) -> None:
    write(tmp_path, cpp_choice(tmp_path), "mm-bb")
    async with running(tmp_path, size=size) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "void kernel")
        text = screen_text(screen)
        assert "1 source" in text and "2 resources" in text and "1/5" in text
        assert "\x1b" not in text and "␛[31mred" in text
        assert all(len(line) <= size[0] for line in text.splitlines())
        await pilot.press("tab")
        await until(pilot, lambda: "a CPU has no such resources" in screen_text(screen))
        await pilot.press("1")
        await opened(app, pilot, "void kernel")
        await pilot.press("o")
        assert isinstance(app.screen, WatchScreen)


async def test_a_page_that_was_left_is_not_shown_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go = source._code, threading.Event()

    def slow(stage: Stage, first: Stage) -> Code:
        go.wait(60)
        return read(stage, first)

    monkeypatch.setattr(source, "_code", slow)
    write(tmp_path, cpp_choice(tmp_path), "mm-bb")
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "Reading…")
        await until(pilot, lambda: "resources" in screen._names)
        await pilot.press("2")
        await until(pilot, lambda: "a CPU has no such resources" in screen_text(screen))
        go.set()
        readers = [worker for worker in app.workers if worker.group == "text"]
        await until(pilot, lambda: all(worker.is_finished for worker in readers))
        assert "a CPU has no such resources" in screen_text(screen)


async def test_a_search(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(500)).replace("line 300", "HERE 300")
    write(tmp_path, f"triton_mm-{module(tmp_path, 'c' + 'q' * 51 + '.py', text)}")
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "line 3")
        await pilot.press("slash")
        await typed(pilot, "here", "enter")
        await until(pilot, lambda: "HERE 300" in screen_text(screen.view))
        assert screen.view.cursor == 300 and "1 line match" in screen_text(screen)
        await pilot.press("slash")
        await typed(pilot, "line 49", "enter", "n", "n")
        assert screen.view.cursor == 492
        await pilot.press("N")
        assert screen.view.cursor == 491
        await pilot.press("escape")
        assert not screen.view.matches and isinstance(app.screen, SourceScreen)
        await pilot.press("n", "escape")
        assert isinstance(app.screen, WatchScreen)


async def test_the_path_is_copied(tmp_path: Path) -> None:
    write(tmp_path, cpp_choice(tmp_path))
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        await opened(app, pilot, "void kernel")
        await pilot.press("y")
        assert app.clipboard == str(tmp_path / "dd" / ("c" + "d" * 51 + ".main.cpp"))


async def test_a_library_has_none(tmp_path: Path) -> None:
    write(tmp_path, "mm-bb", cpp_choice(tmp_path))
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        await pilot.pause()
        assert isinstance(app.screen, WatchScreen)
        told = [note.message for note in app._notifications]
        assert told == ["mm-bb is a kernel of ATen or of a library behind it, whose source is in "
                        "no cache"]  # fmt: skip
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        await until(pilot, lambda: "pin" in keys_of(app))
        assert not keys_of(app) & {"diff", "read"}
        await pilot.press("d")
        assert not app.screen.query_one(DiffView).display
        await pilot.press("l")
        await until(pilot, lambda: "read" in keys_of(app))
        assert "diff" not in keys_of(app)
        await pilot.press("o")
        await opened(app, pilot, "void kernel")
        await pilot.press("escape")
        assert isinstance(app.screen, CompareScreen)


async def test_a_source_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path, f"triton_mm-c{'x' * 51}")
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "it was removed")
        await pilot.press("tab", "2", "n", "y", "h", "G")
        assert app.screen is screen


async def test_triton_choices_are_compared(tmp_path: Path) -> None:
    names = [module(tmp_path, f"c{letter * 51}.py", PYTHON.format(letter)) for letter in "mn"]
    write(tmp_path, *(f"triton_mm-{name}" for name in names))
    async with running(tmp_path, size=(120, 40)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        await until(pilot, lambda: "#2 triton_mm" in screen_text(app.screen))
        await pilot.press("d")
        diff = app.screen.query_one(DiffView)
        await until(pilot, lambda: '-    return "m", x' in screen_text(diff))
        assert '+    return "n", x' in screen_text(diff)


async def test_what_triton_made_of_it(tmp_path: Path) -> None:
    compiled(tmp_path)
    write(tmp_path, f"triton_mm-{NAME}")
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "tl.dot")
        text = screen_text(screen)
        at = next(n for n in range(3, 10) if f"{n} amdgcn gfx942" in text)
        await pilot.press(str(at), "slash")
        await typed(pilot, "v_mfma", "enter")
        await until(pilot, lambda: "v_mfma_f32" in screen_text(screen.view))
        await pilot.press("2")
        await until(pilot, lambda: "vector registers a thread" in screen_text(screen.view))
        assert "LDS" in screen_text(screen.view)


async def test_what_a_triton_kernel_takes_stands_beside_its_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known from Triton's cache: in the pane, in `show` and in its JSON."""
    compiled(tmp_path)
    write(tmp_path, f"triton_mm-{NAME}", "mm-bb")
    place = ("--cache-dir", str(tmp_path))
    assert main(["ls", "--json", *place]) == 0
    id = json.loads(capsys.readouterr().out)["tunings"][0]["id"]
    assert main(["show", id, "#1", *place]) == 0
    assert "Triton's cache has it for" in capsys.readouterr().out  # two GPUs, and no session
    for kernel in code.kernels_of(tmp_path / NAME[1:3] / f"{NAME}.py", code.folders_of(tmp_path)):
        if kernel.arch != "gfx942":
            shutil.rmtree(kernel.folder)
    assert main(["show", id, "#1", *place]) == 0
    assert "VGPR" in (shown := capsys.readouterr().out) and "WAVES" in shown
    assert main(["show", id, "--json", *place]) == 0
    first, other = json.loads(capsys.readouterr().out)["choices"]
    assert first["resources"]["vgprs"] > 0 and other["resources"] is None
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: "waves a SIMD" in screen_text(panes.detail))


def test_colours_of_a_line() -> None:
    code = Code(CPP, "c++")
    assert code.lines[0] == "" and code.line(0) == ()
    words = {text.strip(): style for n in range(5) for text, style in code.line(n)}
    assert words["void"] == "accent" and words["<vector>"] == "warn"
    assert words["// ␛[31mred"] == "dim"
    asm = Code("main:                   ; @main\n\ts_waitcnt vmcnt(0) ; wait\n", "listing")
    assert asm.line(0)[0] == ("main:", "strong") and asm.line(0)[-1] == ("; @main", "dim")
    assert ("        s_waitcnt", "accent") in asm.line(1)


def test_lines_are_those_of_the_text() -> None:
    for language in ("c++", "python", "listing"):
        code = Code(CPP + PYTHON + "\x0b x\x0c\u2028y\r\n", language)  # type: ignore[arg-type]
        assert len(code.lines) > 10
        for n, line in enumerate(code.lines):
            assert len("".join(text for text, _ in code.line(n))) == len(line)


def test_a_long_text_is_coloured_where_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured: list[Line] = []
    tokens = Code._tokens

    def counted(code: Code, language: Language) -> Iterator[Line]:
        for line in tokens(code, language):
            coloured.append(line)
            yield line

    monkeypatch.setattr(Code, "_tokens", counted)
    code = Code("int a = 1;  // b\n" * 100_000, "c++")
    assert code.line(99_999) == (("int a = 1;  // b", ""),) and not coloured
    assert code.line(30)[0] == ("int", "accent") and len(coloured) == 31


async def test_a_long_text_is_painted_by_what_is_seen(tmp_path: Path) -> None:
    text = "x = 1  # a\n" * 200_000
    write(tmp_path, f"triton_mm-{module(tmp_path, 'c' + 'q' * 51 + '.py', text)}")
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("o")
        screen = await opened(app, pilot, "x = 1")
        view = screen.query_one(CodeView)
        await pilot.press("G")
        await until(pilot, lambda: "200000" in screen_text(view))
        assert "200000/200000" in screen_text(screen)

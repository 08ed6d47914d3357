"""Registers, LDS and occupancy of real code objects, in `show` and on the screen."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.cache.code import CompiledKernel
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningStarted
from backend.model.origin import choice_hash, kernel_hash
from backend.model.session import Session
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.legality import lds_bytes
from backend.templates.problem import Sizes
from backend.templates.rendering import Rendered, render
from backend.toolchain import code_cache
from backend.toolchain.resources import Resources, Unknown, resources
from backend.toolchain.target import Compiler, Target, amdgpu, cpu, cuda
from backend.toolchain.targets import find_compiler
from rocm_tui.session import kernel_resources
from rocm_tui.session.kernel_resources import KernelResources, ResourceUse
from tests.support.screen_lab import panes_of, running, screen_text, until
from tools.resources_table import plain_problem

SHAPE, FEW = Sizes(64, 128, 96), Sizes(4, 128, 96)
INPUTS = (
    "[('cuda', 'torch.float16', 64, 96, 96, 1, 0), ('cuda', 'torch.float16', 96, 128, 128, 1, 0)]"
)
TARGETS = (*(amdgpu(arch) for arch in ("gfx90a", "gfx942", "gfx1100")), cuda("sm_90"))


@functools.cache
def kernels(target: Target) -> list[Rendered]:
    """A tiled and, of fewer rows, a skinny one, as the backend renders them."""
    problem = plain_problem("float16", SHAPE)
    config = gemm_configs(problem, target, SHAPE)[0]
    skinny = skinny_configs(plain_problem("float16", FEW), target, FEW)[0]
    return [
        render(problem, config, "rocm_gemm"),
        render(plain_problem("float16", FEW), skinny, "rocm_skinny"),
    ]


def choice(rendered: Rendered, target: Target, ms: float | None = 0.1) -> Choice:
    """As an event log tells of it."""
    template = rendered.name.removeprefix("rocm_")
    kernel = kernel_hash(rendered.source, rendered.name, str(target))
    description = rendered.config.description
    return Choice(f"{rendered.name}_0", choice_hash(template, kernel, description), ms, description)


def needs(target: Target) -> None:
    if not isinstance(find_compiler(target), Compiler):
        pytest.skip(f"no compiler for {target}")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_choice_has_what_its_code_object_says(target: Target, tmp_path: Path) -> None:
    needs(target)
    known = KernelResources(tmp_path)
    for rendered in kernels(target):
        asked = choice(rendered, target)
        assert asked.hash
        before = known.of([asked, Choice("mm", "mm-123"), Choice("rocm_gemm_1")])
        assert list(before) == [asked.hash]
        assert isinstance(before[asked.hash], Unknown)
        compiled = code_cache.compile(rendered.source, target, cache_root=tmp_path)
        in_file = resources(compiled)
        assert isinstance(in_file, tuple)
        found = known.of([asked])[asked.hash]
        assert isinstance(found, ResourceUse)
        assert found.target == target
        assert found.resources.kernel in [kernel.kernel for kernel in in_file]
        size = SHAPE if rendered.name == "rocm_gemm" else FEW
        counted = lds_bytes(rendered.config, plain_problem("float16", size))
        assert found.resources.lds == counted  # what a launch asks for is in no file
        assert "reduce_parts" not in found.resources.kernel
        assert found.resources.vgprs and found.resources.wave == target.wave
        assert found.occupancy is not None
        assert found.resources.max_threads in (None, rendered.config.waves * target.wave)
        assert 1 <= found.occupancy.waves_per_simd <= found.occupancy.of


def test_nothing_is_guessed(tmp_path: Path) -> None:
    target = amdgpu("gfx90a")
    needs(target)
    rendered = kernels(target)[0]
    compiled = code_cache.compile(rendered.source, target, cache_root=tmp_path)
    asked = choice(rendered, target)
    assert asked.hash

    def reason(one: Choice) -> str:
        (found,) = KernelResources(tmp_path).of([one]).values()
        assert isinstance(found, Unknown), found
        return found.reason

    elsewhere = choice(rendered, amdgpu("gfx942"))
    assert "not in the code cache" in reason(elsewhere)
    assert "config of the choice is unknown" in reason(Choice(hash=asked.hash, ms=1.0))
    other = asked.description.replace("XCDS=1", "XCDS=2")
    assert other != asked.description
    assert "not in the code cache" in reason(Choice(None, asked.hash, 1.0, other))
    code = compiled.path.read_bytes()
    compiled.path.write_bytes(code[:-100])
    assert "damaged" in reason(asked)
    compiled.path.write_bytes(code)
    twin = compiled.path.with_name(f"{'0' * 64}{compiled.path.suffix}")
    for suffix in (compiled.path.suffix, ".hip", ".json"):
        twin.with_suffix(suffix).write_bytes(compiled.path.with_suffix(suffix).read_bytes())
    assert isinstance(KernelResources(tmp_path).of([asked])[asked.hash], ResourceUse), "they agree"
    (tmp_path / "rocm_tui" / "code" / "00").mkdir()
    (tmp_path / "rocm_tui" / "code" / "00" / "x.json").write_text("[" * 10000)
    assert isinstance(KernelResources(tmp_path).of([asked])[asked.hash], ResourceUse)


def test_without_msgpack_it_says_so(tmp_path: Path) -> None:
    target = amdgpu("gfx90a")
    needs(target)
    rendered = kernels(target)[0]
    code_cache.compile(rendered.source, target, cache_root=tmp_path)
    asked = choice(rendered, target)
    code = (
        "import sys; sys.modules['msgpack'] = None\n"
        "from pathlib import Path\n"
        "from backend.model.choice import Choice\n"
        "from rocm_tui.session.kernel_resources import KernelResources\n"
        "found = KernelResources(Path(sys.argv[1])).of([Choice('x', *sys.argv[2:3], 1.0,"
        " sys.argv[3])])\n"
        "print(*found.values())\n"
        "assert not {'torch', 'jinja2', 'sympy', 'textual'} & {*sys.modules}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(asked.hash), asked.description],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "msgpack is not installed" in done.stdout


def tuned(folder: Path, target: Target) -> list[Choice]:
    """A cache dir with the log of a session that timed both of our kernels and ATen's."""
    ours = kernels(target)
    for rendered in ours:
        code_cache.compile(rendered.source, target, cache_root=folder)
    choices = [choice(rendered, target, None) for rendered in ours] + [Choice("mm", "mm-77")]
    device = "cpu" if target.kind == "cpu" else "cuda"
    log = EventWriter(Layout(folder), Session("s1", host="box", pid=1, device=device))
    sizes, strides = ((64, 96), (96, 128)), ((96, 1), (128, 1))
    dtypes = ("torch.float16",) * 2
    inputs = INPUTS.replace("cuda", device)
    log.write(
        TuningStarted(
            1, 1.0, "mm", inputs, "highest", sizes, strides, dtypes, device, tuple(choices)
        )
    )
    for at, one in enumerate(choices, start=1):
        log.write(ChoiceTimed(1, str(one.hash), 0.1 * at))
    log.write(ChoiceSelected(1, 2.0, str(choices[0].hash), "timing", 0.5, None))
    log.close()
    assert log.error is None
    return choices


@functools.cache
def id_of(folder: Path) -> str:
    """Of the only tuning there."""
    command = [sys.executable, "-m", "rocm_tui", "ls", "--json", str(folder)]
    (tuning,) = json.loads(subprocess.check_output(command, text=True))["tunings"]
    return str(tuning["id"])


def show(folder: Path, *arguments: str) -> str:
    words = ["show", id_of(folder), *arguments, "--cache-dir", str(folder)]
    return subprocess.check_output([sys.executable, "-m", "rocm_tui", *words], text=True)


def test_show(tmp_path: Path) -> None:
    target = amdgpu("gfx90a")
    needs(target)
    gemm, skinny, _ = tuned(tmp_path, target)
    found = KernelResources(tmp_path).of([gemm, skinny])
    text = show(tmp_path).splitlines()
    head = next(line for line in text if line.startswith("a kernel takes"))
    assert head.split() == "a kernel takes VGPR AGPR SGPR LDS SCRATCH SPILLS WAVES LIMIT".split()
    for one in (gemm, skinny):
        known = found[str(one.hash)]
        assert isinstance(known, ResourceUse) and known.occupancy
        (line,) = [line for line in text[text.index(head) :] if line.startswith(f"{one.name} ")]
        cells = line.split()
        assert cells[1] == str(known.resources.vgprs)
        waves = f"{known.occupancy.waves_per_simd}/{known.occupancy.of}"
        assert cells[cells.index(waves) - 1] == "0"  # spills
    assert not any(line.startswith("mm ") for line in text[text.index(head) :])
    alone = show(tmp_path, "rocm_skinny_0")
    assert "rocm_gemm_0  " not in alone.partition("a kernel takes")[2]
    printed = {c["name"]: c["resources"] for c in json.loads(show(tmp_path, "--json"))["choices"]}
    known = found[str(gemm.hash)]
    assert isinstance(known, ResourceUse) and known.occupancy
    assert printed["mm"] is None
    assert printed["rocm_gemm_0"]["target"] == "amdgpu:gfx90a"
    assert printed["rocm_gemm_0"]["lds"] == known.resources.lds
    assert printed["rocm_gemm_0"]["limited_by"] == known.occupancy.limited_by


def test_show_of_a_cpu_says_unknown(tmp_path: Path) -> None:
    needs(cpu())
    tuned(tmp_path, cpu())
    text = show(tmp_path)
    assert "registers and LDS of 2 choices unknown: a CPU has no such resources" in text
    assert "VGPR" not in text
    (first, *_) = json.loads(show(tmp_path, "--json"))["choices"]
    assert first["resources"] == {"unknown": "a CPU has no such resources"}


async def test_the_screen(tmp_path: Path) -> None:
    target = amdgpu("gfx90a")
    needs(target)
    gemm, *_ = tuned(tmp_path, target)
    known = KernelResources(tmp_path).of([gemm])[str(gemm.hash)]
    assert isinstance(known, ResourceUse) and known.occupancy
    waves = f"{known.occupancy.waves_per_simd}/{known.occupancy.of}"
    async with running(tmp_path, size=(200, 60)) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: "VGPR" in screen_text(panes.detail))
        lines = screen_text(panes.detail).splitlines()
        (head,) = [line for line in lines if "CHOICE" in line]
        for title in ("VGPR", "LDS", "WAVES"):
            assert title in head
        (row,) = [line for line in lines if "rocm_gemm_0" in line and waves in line.split()]
        assert str(known.resources.vgprs) in row.split()
        (full,) = [line for line in lines if line.startswith(" gfx90a: ")]
        assert f"{waves} waves a SIMD (" in full
        assert f"{known.resources.vgprs} VGPR" in full and "no spills" in full
        await pilot.press("tab", "j", "j")
        await until(pilot, lambda: " gfx90a: " not in screen_text(panes.detail))  # ATen's mm


async def test_the_screen_of_a_cpu_says_unknown(tmp_path: Path) -> None:
    needs(cpu())
    tuned(tmp_path, cpu())
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: "a CPU has no such resources" in screen_text(panes.detail))
        assert "VGPR" not in screen_text(panes.detail)


def test_a_choice_of_a_template_that_is_gone_is_unknown(tmp_path: Path) -> None:
    config = "BLOCK_SIZE=64, M_PER_BLOCK=16, SPLIT_K=1"
    choice = Choice("rocm_ck_0", choice_hash("ck", "0" * 32, config), 0.1, config)
    resources = KernelResources(tmp_path)
    (answer,) = resources.of([choice]).values()
    assert isinstance(answer, Unknown) and "the config of the choice is unknown" in answer.reason
    assert resources.source_of(choice) is None


MAIN, BIG = Resources("rocm_gemm", vgprs=8, lds=16), Resources("rocm_gemm_2", vgprs=9, lds=32)
SECOND = Resources("reduce_parts", vgprs=99)


@pytest.mark.parametrize(
    ("found", "words", "lds"),
    [
        ([MAIN], "", 16), ([SECOND, MAIN], "", 16), ([MAIN, BIG], "one main kernel", 0),
        ([SECOND], "one main kernel", 0), (None, "damaged", 0), (OSError(2, "gone"), "gone", 0),
        (Unknown("odd"), "odd", 0),
    ],
)  # fmt: skip
def test_what_is_said_of_a_kernel_in_the_code_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any, words: str, lds: int
) -> None:
    """Without a compiler: what its tools say is given here."""
    target = TARGETS[1]
    rendered, _ = kernels(target)
    asked, entry, looks = choice(rendered, target), tmp_path / "e-tools.json", list[Path]()

    def source_of(path: Path) -> tuple[Target, str]:
        looks.append(path)
        return target, rendered.source

    def said(_: object) -> Any:
        if isinstance(found, OSError):
            raise found
        return found

    cache = kernel_resources.code_cache
    monkeypatch.setattr(cache, "entries", lambda _: [entry])
    monkeypatch.setattr(cache, "source_of_entry", source_of)
    compiled = None if found is None else SimpleNamespace(path=tmp_path / "k.hsaco")
    monkeypatch.setattr(cache, "compiled", lambda _: compiled)
    monkeypatch.setattr(kernel_resources, "resources", said)
    known = KernelResources(tmp_path)
    monkeypatch.setattr(cache, "entries", lambda _: [])
    (missing,) = known.of([asked]).values()
    assert isinstance(missing, Unknown) and "not in the code cache" in missing.reason
    monkeypatch.setattr(cache, "entries", lambda _: [entry])
    (answer,) = known.of([asked]).values()
    if words:
        assert isinstance(answer, Unknown) and words in answer.reason
    else:
        assert isinstance(answer, ResourceUse) and answer.target == target
        assert answer.resources.kernel == "rocm_gemm" and (answer.resources.lds or 0) >= lds
        before = len(looks)
        assert list(known.of([asked]).values()) == [answer] and len(looks) == before
    assert known.source_of(asked) == (target, rendered.source)
    assert known.source_of(replace(asked, hash=choice_hash("gemm", "0" * 16, "x"))) is None


@pytest.mark.parametrize(
    ("arches", "arch", "words", "lds"),
    [
        (["sm_90"], "", "", 64),
        (["sm_90", "sm_80"], "sm_80", "", 64), (["sm_90"], "gfx942", "", 64),
        (["sm_90", "sm_80"], "", "for sm_90, sm_80", 0),
        (["sm_90", "sm_80"], "gfx942", "no session", 0),
        (["odd"], "", "arch that is none", 0), (["gfx942"], "", "cannot read", 0),
        ([], "", None, 0),
    ],
)  # fmt: skip
def test_what_triton_kept_of_a_stock_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arches: list[str], arch: str,
    words: str | None, lds: int,
) -> None:  # fmt: skip
    found = [CompiledKernel("k", tmp_path, each, 128, 64) for each in arches]
    modules: list[Path | None] = [None, tmp_path / "m.py"]
    monkeypatch.setattr(kernel_resources.code, "module_of", lambda *_: modules[0])
    monkeypatch.setattr(kernel_resources.code, "kernels_of", lambda *_: found)
    monkeypatch.setattr(kernel_resources.code, "folders_of", lambda _: [tmp_path / "triton"])
    known, asked = KernelResources(tmp_path), Choice("t", f"triton_mm-c{'a' * 51}")
    assert known.of([asked], arch) == {}, "Inductor's file is not there"
    modules.pop(0)
    answers = known.of([asked, Choice("u")], arch and f"{arch}:sramecc+")
    if words is None:
        assert answers == {}
        found.append(CompiledKernel("k", tmp_path, "sm_90", 128, 64))
        assert known.of([asked], arch) == {}, "nothing was compiled since"
        (tmp_path / "triton").mkdir()
        assert len(known.of([asked], arch)) == 1
        return
    (answer,) = answers.values()
    if words:
        assert isinstance(answer, Unknown) and words in answer.reason
    else:
        assert isinstance(answer, ResourceUse) and answer.resources.lds == lds
        assert answer.resources.wave == 32 and answer.target.kind == "cuda"

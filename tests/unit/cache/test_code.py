"""The texts of kernels in Inductor's and Triton's caches: found by a hash, read as text alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backend.cache import code
from backend.cache.code import MAX_BYTES, code_hash, code_of, digest_in
from backend.toolchain.resources import Unknown
from rocm_tui.session.kernel_resources import of_triton
from tests.support.triton_stages import NAME, SOURCE, compiled


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir with a module that real Triton compiled for gfx942 and sm_90."""
    root = tmp_path_factory.mktemp("code") / "cache"
    compiled(root)
    return root


def cpp(root: Path, text: str, name: str = "c" + "d" * 51) -> str:
    """A C++ choice as Inductor leaves it: the name of the file is not the digest of the text."""
    path = root / name[1:3] / f"{name}.main.cpp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"CppMicroGemmFP32Vec-{code_hash(text.encode())}"


def test_a_triton_choice_is_a_file_of_its_digest(root: Path) -> None:
    code = code_of(root, f"triton_mm-{NAME}")
    assert code is not None and code.text == SOURCE
    assert code.path == root / "ab" / f"{NAME}.py"


def test_what_triton_made_of_it_for_each_gpu(root: Path) -> None:
    module = root / "ab" / f"{NAME}.py"
    kernels = {k.arch: k for k in code.kernels_of(module, code.folders_of(root, {}))}
    assert {*kernels} == {"gfx942", "sm_90"}
    amd, nvidia = kernels["gfx942"], kernels["sm_90"]
    assert [*amd.stages] == ["amdgcn", "llir", "ttgir", "ttir"]
    assert [*nvidia.stages] == ["ptx", "llir", "ttgir", "ttir"]
    assert "v_mfma" in amd.stages["amdgcn"].read_text()
    assert ".target sm_90" in nvidia.stages["ptx"].read_text()
    assert (amd.threads, nvidia.threads) == (256, 128)


def test_what_the_kernel_takes_of_its_gpu(root: Path) -> None:
    pytest.importorskip("msgpack")
    module = root / "ab" / f"{NAME}.py"
    kernels = {k.arch: k for k in code.kernels_of(module, code.folders_of(root, {}))}
    known = of_triton(kernels["gfx942"])
    assert not isinstance(known, Unknown)
    text = kernels["gfx942"].stages["amdgcn"].read_text()
    (line,) = [line for line in text.splitlines() if ".vgpr_count:" in line]
    assert known.resources.vgprs == int(line.split()[-1])
    assert known.resources.lds == kernels["gfx942"].shared
    assert known.occupancy is not None and 1 <= known.occupancy.waves_per_simd <= 8


def test_another_module_has_no_kernel(root: Path) -> None:
    other = root / "ab" / f"{NAME[:-1]}x.py"
    assert code.kernels_of(other, code.folders_of(root, {})) == []


def test_a_cpp_choice_is_found_by_its_text(tmp_path: Path) -> None:
    cpp(tmp_path, "int other;\n", "c" + "e" * 51)
    hash_ = cpp(tmp_path, "\n\n#include <vector>\n")
    code = code_of(tmp_path, hash_)
    assert code is not None and code.text == "\n\n#include <vector>\n"


def test_a_text_that_was_changed_is_not_the_choices(tmp_path: Path) -> None:
    hash_ = cpp(tmp_path, "int one;\n")
    assert code_of(tmp_path, hash_) is not None
    (path,) = tmp_path.glob("*/*.cpp")
    path.write_text("int two;\n")
    os.utime(path, ns=(1, 1))
    assert code_of(tmp_path, hash_) is None


def test_a_subgraph_is_its_hash(tmp_path: Path) -> None:
    code = code_of(tmp_path, "decompose_k_mm-[8, 4]-graph():\n    %a : [num_users=1]\n")
    assert code is not None and code.path is None and code.text.startswith("graph():\n    %a")


def test_an_extern_kernel_has_none(tmp_path: Path) -> None:
    assert digest_in("mm-aa") is None and code_of(tmp_path, "mm-aa") is None
    assert code_of(tmp_path / "nowhere", f"triton_mm-{NAME}") is None


def test_links_pipes_and_large_files_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / NAME[1:3]
    folder.mkdir()
    path = folder / f"{NAME}.py"
    os.mkfifo(path)
    assert code_of(tmp_path, f"triton_mm-{NAME}") is None
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert code_of(tmp_path, f"triton_mm-{NAME}") is None
    path.unlink()
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert code_of(tmp_path, f"triton_mm-{NAME}") is None


def test_triton_folders_with_anything_in_them(tmp_path: Path) -> None:
    place = tmp_path / "triton" / "0" / "X"
    place.mkdir(parents=True)
    (place / "k.ttir").write_text(f'#loc = loc("/x/{NAME}.py":1:1)\n')
    module, folders = tmp_path / f"{NAME}.py", code.folders_of(tmp_path, {})
    for text in ("", "[" * 100_000, "[]", '{"target": 3}', '{"target": {"arch": ["\x1b"]}}'):
        (place / "k.json").write_text(text)
        kernels = code.kernels_of(module, folders)
        assert len(kernels) <= 1
        assert all(isinstance(of_triton(kernel), Unknown) for kernel in kernels)
    (place / "k.json").write_text('{"target": {"backend": "hip", "arch": "gfx942"}}')
    (kernel,) = code.kernels_of(module, folders)
    os.mkfifo(kernel.code_object)
    assert isinstance(of_triton(kernel), Unknown)


def test_a_long_ir_names_its_module_at_its_end_or_its_beginning(tmp_path: Path) -> None:
    """Versions of MLIR differ in that; what is between them is not read."""
    place = tmp_path / "triton" / "0" / "X"
    place.mkdir(parents=True)
    (place / "k.json").write_text('{"target": {"backend": "hip", "arch": "gfx942"}}')
    module, folders = tmp_path / f"{NAME}.py", code.folders_of(tmp_path, {})
    named, rest = f'#loc = loc("/x/{NAME}.py":1:1)\n', "  %0 = arith.constant 0\n" * 2000
    for text, kernels in ((named + rest, 1), (rest + named, 1), (rest + named + rest, 0)):
        (place / "k.ttir").write_text(text)
        assert len(code.kernels_of(module, folders)) == kernels


def test_the_python_file_of_a_choice(root: Path, tmp_path: Path) -> None:
    path = root / "ab" / f"{NAME}.py"
    assert code.module_of(root, f"triton_mm-{NAME}") == path
    assert code.module_of(tmp_path, f"triton_mm-{NAME}") is None
    assert code.module_of(root, "mm-aa") is None


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff" + b"x" * 9)
    assert code.read_file(path, 10) == path.read_bytes() and code.read_file(path, 9) is None
    assert code.read_text(path, 10) == "\ufffd" + "x" * 9 and code.read_text(path, 9) is None


def test_only_folders_of_code_are_searched_for_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_ = cpp(tmp_path, "int one;\n")
    (tmp_path / "dd").rename(tmp_path / "ddd")
    assert code_of(tmp_path, hash_) is None
    (tmp_path / "dd").symlink_to(tmp_path / "ddd")
    assert code_of(tmp_path, hash_) is None
    (tmp_path / "dd").unlink()
    (tmp_path / "ddd").rename(tmp_path / "dd")
    assert code_of(tmp_path, hash_) is not None
    monkeypatch.setattr(code, "MOST_FILES", 0)
    assert code_of(tmp_path, hash_) is None


def test_tritons_folders_are_those_of_the_devices_and_of_the_environment(tmp_path: Path) -> None:
    for name in ("1", "0", "other"):
        (tmp_path / "triton" / name).mkdir(parents=True)
    (tmp_path / "triton" / "2").symlink_to("0")
    own = [tmp_path / "triton" / name for name in "01"]
    assert code.folders_of(tmp_path, {}) == own
    assert code.folders_of(tmp_path, {"TRITON_CACHE_DIR": "/x"}) == [*own, Path("/x")]
    assert code.folders_of(tmp_path / "none", {}) == []


def put_kernel(folder: Path, arch: object, age: int, suffix: str = "ttir", **more: object) -> None:
    folder.mkdir(parents=True)
    metadata = {"target": {"backend": "hip", "arch": arch, "warp_size": 64}, **more}
    (folder / "k.json").write_text(json.dumps(metadata))
    for each in (suffix, "amdgcn"):
        (folder / f"k.{each}").write_text(f'#loc = loc("/x/{NAME}.py":1:1)\n')
        os.utime(folder / f"k.{each}", (1e9 - age, 1e9 - age))


def test_of_the_kernels_of_an_arch_the_newest_counts(tmp_path: Path) -> None:
    cache = tmp_path / "triton" / "0"
    put_kernel(cache / "A", "gfx942", 50, num_warps=4, shared=1024)
    put_kernel(cache / "B", "gfx942:xnack-", 10, num_warps=8, shared=-1)
    put_kernel(cache / "C", "gfx942", 90)
    put_kernel(cache / "D", "gfx90a", 5, "ttgir", num_warps=True, shared=1 << 32)
    put_kernel(cache / "E", 90, 3, num_warps=4)
    (cache / "E" / "k.json").write_text('{"target": {"backend": "cuda", "arch": 90}}')
    module = tmp_path / f"{NAME}.py"
    kernels = code.kernels_of(module, [cache])
    assert [(k.arch, k.folder.name, k.threads, k.shared) for k in kernels] == [
        ("sm_90", "E", None, None), ("gfx90a", "D", None, None), ("gfx942", "B", 512, None),
    ]  # fmt: skip
    assert [*kernels[1].stages] == ["amdgcn", "ttgir"]
    assert kernels[2].code_object == cache / "B" / "k.hsaco"
    assert code.modules_of(cache / "A") == {module.name} and not code.modules_of(tmp_path)
    assert code.kernels_of(module, []) == []

"""What a hooked process reads from its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.inductor.hooks import environment
from backend.inductor.hooks.environment import CacheDirs


def test_the_description_of_a_run_is_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run"
    file.write_text('{"run": "r1", "pid": 7}')
    for text in ('{"run": "r1", "pid": 7}', str(file)):
        assert environment.run_info({environment.RUN: text}) == {"run": "r1", "pid": "7"}
    assert environment.run_info({}) == {}


@pytest.mark.parametrize("text", ["", "/no/such/file", "{", "[1]", "{" + '"a":[' * 99_999, "\0"])
@pytest.mark.parametrize(
    ("name", "read"),
    [(environment.RUN, environment.run_info), (environment.OPTIONS, environment.options)],
)
def test_what_is_no_description_is_empty(
    name: str, read: Callable[[dict[str, str]], object], text: str
) -> None:
    assert read({name: text}) == {}


def test_options_are_texts() -> None:
    env = {environment.OPTIONS: '{"max_autotune": "True", "threads": 4}'}
    assert environment.options(env) == {"max_autotune": "True", "threads": "4"}


@pytest.mark.parametrize(
    ("env", "rank"),
    [({}, None), ({"RANK": "3", "LOCAL_RANK": "1"}, 3), ({"LOCAL_RANK": "1"}, 1),
     ({"RANK": "x", "LOCAL_RANK": "0"}, 0), ({"RANK": ""}, None), ({"RANK": "-1"}, None)],
)  # fmt: skip
def test_the_rank_is_the_jobs_else_that_of_the_host(env: dict[str, str], rank: int | None) -> None:
    assert environment.rank(env) == rank


@pytest.mark.parametrize(
    ("info", "more", "is_program"),
    [
        ("", {}, False),
        ("", {"RANK": "0"}, False),
        ('{"run": "r", "pid": "PARENT"}', {}, True),
        ('{"run": "r", "pid": "0"}', {}, False),
        ('{"run": "r", "pid": "0"}', {"RANK": "0"}, True),
    ],
)
def test_the_program_of_a_run_is_its_child_or_a_rank(
    monkeypatch: pytest.MonkeyPatch, info: str, more: dict[str, str], is_program: bool
) -> None:
    env = {environment.RUN: info.replace("PARENT", str(os.getppid())), **more}
    assert environment.is_program(env) is is_program
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "...", "--multiprocessing-fork"])
    assert environment.is_program(env) is False


@pytest.mark.parametrize(
    ("argv", "is_worker"),
    [(["/x/torch/_inductor/compile_worker/__main__.py", "--pid"], True),
     (["/x/compile_workers/train.py", "compile_worker"], False), ([], False)],
)  # fmt: skip
def test_a_compile_worker_is_named_by_its_program(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], is_worker: bool
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert environment.is_compile_worker() is is_worker


@pytest.mark.parametrize(
    ("text", "on"), [(None, False), ("", False), ("0", False), ("1", True), ("abc", True)]
)
def test_a_feature_is_on_unless_it_is_0(text: str | None, on: bool) -> None:
    assert environment.is_on("X", {} if text is None else {"X": text}) is on


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, False),
        ({environment.RUN: "{}"}, True),
        ({environment.RUN: "{}", environment.SHARES: "0"}, False),
        ({environment.SHARES: "1"}, True),
        ({environment.SHARES: "0"}, False),
        ({environment.RUN: "{}", environment.SHARES: ""}, True),
    ],
)
def test_graphs_are_recorded_in_a_run_unless_the_variable_says_otherwise(
    env: dict[str, str], wanted: bool
) -> None:
    assert environment.shares_wanted(env) is wanted


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 0.0), ("", 0.0), ("2.5", 2.5), ("-1", 0.0), ("1e9", 3600.0), ("soon", 0.0)],
)
def test_the_seconds_of_a_kernels_measurement_are_bounded(text: str | None, seconds: float) -> None:
    env = {} if text is None else {environment.MEASURE: text}
    assert environment.measure_seconds(env) == seconds


@pytest.mark.parametrize(
    ("text", "version"),
    [(None, None), ("", None), ("0", None), ("1", None), ("TRUE", None), ("on", None),
     ("yes", None), ("0123456789abcdef", "0123456789abcdef")],
)  # fmt: skip
def test_templates_may_be_wanted_in_one_version(text: str | None, version: str | None) -> None:
    env = {} if text is None else {environment.TEMPLATES: text}
    assert environment.wanted_version(env) == version


def test_the_version_of_our_kernels_follows_from_the_sources_that_decide_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_BACKEND", tmp_path)
    versions = [environment.kernels_version()]
    files = (
        "templates/a.py",
        "templates/b.jinja",
        "toolchain/include/c.h",
        "inductor/hip/d.py",
        "inductor/triton/e/f.py",
        "inductor/torch/g.py",
    )
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        versions.append(environment.kernels_version())
    assert len(set(versions)) == len(files) + 1
    assert all(len(version) == 16 and int(version, 16) >= 0 for version in versions)
    for name in ("templates/notes.txt", "pins/store.py", "inductor/hooks/graphs.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert environment.kernels_version() == versions[-1]
    (tmp_path / "templates/a.py").rename(tmp_path / "templates/z.py")
    assert environment.kernels_version() not in versions


@pytest.mark.parametrize(("interpreted", "end"), [("1", "-interpreted"), ("", "")])
def test_graphs_with_our_kernels_are_kept_apart_by_their_version(
    monkeypatch: pytest.MonkeyPatch, interpreted: str, end: str
) -> None:
    tags: list[str] = []
    monkeypatch.setattr(environment, "tag_graphs", tags.append)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    environment.separate_graphs()
    assert tags == [f"rocm-tui-templates-{environment.kernels_version()}{end}"]


def test_which_cache_dir_is_the_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(name: str) -> None:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"/{name}")

    use("home")
    home = CacheDirs(Path("/home"))
    assert home.places() == (Path("/home"),)
    use("named")  # by the program, before anything was cleared
    assert home.places() == (Path("/named"),)
    use("home")
    home.cache_clear()
    use("one")
    assert home.places() == (Path("/one"), Path("/home"))
    home.cache_clear()
    use("two")  # one temporary folder in another
    assert home.current() == Path("/home")
    use("one")
    home.cache_clear()
    assert home.places() == (Path("/one"), Path("/home"))
    use("home")
    home.cache_clear()
    assert home.places() == (Path("/home"),)

"""Every document of `--json` names its schema, follows it, and keeps it within a version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from backend.errors import StoreError
from backend.model.choice import Output
from backend.model.problem import TuningKey
from rocm_tui.cli.entry import main
from rocm_tui.cli.schema import documents
from rocm_tui.errors import RocmTuiError, error_code
from rocm_tui.json_output import Document, json_schema, schema_tag
from tests.support.documents import document
from tests.support.graph_log import write_program
from tests.support.log_lab import BMM
from tests.support.places import ROOT
from tests.support.screen_lab import inputs, measured, write_cache
from tools import schemas

VALIDATORS = "".join(
    f"Validator,{name},{value}\n"
    for name, value in (
        ("PT_VERSION", "2.9.0"),
        ("GCN_ARCH_NAME", "gfx942"),
        ("ROCM_VERSION", "7.0.0"),
        ("HIPBLASLT_VERSION", "1-2"),
    )
)

NAMES = sorted(documents())
ID = TuningKey("mm", inputs(8), "highest").id

OUTPUTS = f"""
ls: ls a.log
ls: ls missing.log
show: show a72 --from a.log
show-choice: show a72 #2 --from a.log
show-history: show a72 --history --from a.log
sessions: sessions
graphs: graphs
graph: graphs aaa
compare: compare a.log b.log --fail-on-regression 10
compare-tables: compare a.csv b.csv
report: compare a.log
lint: lint a.csv
cover: cover untuned.csv --table a.csv
config: config
doctor: doctor
doctor-mega-caches: doctor a.log
prune: prune --older-than 0
tune-problems: tune a72 --from a.log --dry-run
tune-problems: tune mm 8x4 4x4 --dtype f32 --dry-run
tune-fleet-problems: tune mm 8x4 4x4 --dtype f32 --fleet local --dry-run
tune-tunableop-products: tune --tunableop --dry-run -o new.csv untuned.csv
verify: verify
pin-plan: pin {ID} mm-bb --dry-run
pin-plan: pin a.csv:5 Gemm_Rocblas_1 --dry-run
undo: undo
pin: pin {ID} mm-bb
pins: pins --history
export: export -o pins.json
import: import pins.json
agree: agree a.log b.log
undo: undo --dry-run
undo: undo
pin: pin {ID} mm-bb
plan: unpin --all --dry-run
unpin: unpin --all
plan: unpin --all --dry-run
export-kernel-options: export --kernel-options
measure-suspects: measure --suspects
error: measure zzz
error: export -o pins.json
"""
"""A document and a command line that prints it, in order: later ones use what earlier ones did."""

ELSEWHERE = {
    "measure": "torch/cli/test_measure.py",
    "tune": "torch/jobs/test_tune.py",
    "tune-compile": "torch/triton/test_ahead.py",
    "tune-fleet": "torch/jobs/test_fleet.py",
    "tune-tunableop": "torch/worker/test_tunableop.py",
    "trial": "torch/cli/test_trial.py",
    "trial-program": "torch/cli/test_trial.py",
    "trial-spread": "unit/actions/test_spread.py",
    "trial-tables": "unit/actions/test_trial_tables.py",
    "improve": "torch/cli/test_improve.py",
    "prove": "torch/cli/test_improve.py",
    "verify-program": "torch/cli/test_verify_program.py",
    "watch": "unit/cli/test_watch_json.py",
    "progress": "torch/mcp/test_client.py",
}
"""Documents of jobs and streams, and the file whose tests validate them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two logs, two tables, an untuned list, and a cache with a graph."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "a.log").write_text(BMM)
    (folder / "b.log").write_text(BMM.replace("0.3000", "0.9000"))
    write_program(folder / "cache")
    write_cache(folder / "cache", 8, 16)
    measured(folder / "cache", {"mm-bb": Output("A", 10, 10, 512)})
    for name, ms in (("a", 0.5), ("b", 0.9)):
        rows = f"GemmTunableOp_float_NN,nn_8_4_4_ld_8_4_8,Default,{ms}\n"
        (folder / f"{name}.csv").write_text(VALIDATORS + rows)
    (folder / "untuned.csv").write_text("GemmTunableOp_float_NN,nn_8_4_16_ld_8_16_8\n")
    return folder


@pytest.fixture(autouse=True)
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place / "cache"))


def test_every_output_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.partition(": ") for line in OUTPUTS.strip().splitlines()]
    for name, _, words in lines:
        main([*words.split(), "--json"])
        out, err = capsys.readouterr()
        assert out.count("\n") == 1, (words, out, err)
        assert document(out, name), words
    assert {*NAMES} == {name for name, _, _ in lines} | {*ELSEWHERE}
    for name, path in ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / "tests" / path).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_document_does_not_change_within_a_version(name: str) -> None:
    kind = documents()[name]
    assert schemas.path_of(kind).exists(), "python -m tools.schemas writes it"
    present, written = schemas.meanings(kind)
    assert present == written, f"raise the version of {schema_tag(kind)}"
    Draft202012Validator.check_schema(json_schema(kind))


def test_older_versions_stay() -> None:
    """Files are those of versions 1 to the present one."""
    expected = {
        f"{name}-{version}.json"
        for name, kind in documents().items()
        for version in range(1, int(schema_tag(kind).rpartition("/")[2]) + 1)
    }
    assert {path.name for path in schemas.FOLDER.iterdir()} == expected


def test_a_change_is_noticed_and_a_rename_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class First(Document, tag="rocm-tui/planted/1"):
        ms: float

    class Reworded(Document, tag="rocm-tui/planted/1"):
        """A longer description."""

        ms: float

    class Changed(Document, tag="rocm-tui/planted/1"):
        ms: int

    monkeypatch.setattr(schemas, "FOLDER", tmp_path)
    schemas.path_of(First).write_text(schemas.text_of(First))
    assert not schemas.changed(First) and not schemas.changed(Reworded)
    assert schemas.changed(Changed)
    monkeypatch.setattr(schemas, "documents", lambda: {"planted": Changed})
    assert schemas.main() == 1 and '"integer"' not in schemas.path_of(First).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_documents_are_not_parts_of_documents(name: str) -> None:
    tagged = [
        part
        for part in json_schema(documents()[name])["$defs"].values()
        if "schema" in part.get("properties", {})
    ]
    assert len(tagged) == 1


def test_schema_prints_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "ls"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "rocm-tui/ls/1"
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.splitlines() == sorted(map(schema_tag, documents().values()))
    assert main(["schema", "sl"]) == 2
    assert "`rocm-tui schema` lists them" in capsys.readouterr().err


CODES = """
already-running busy cache-unreadable config-there import-cut-short inputs-key-invalid job-error
job-failed job-timeout mega-cache-invalid no-such-choice no-such-graph no-such-session
no-such-source no-such-tuning no-torch-python no-tuning-device not-measurable not-measured
not-pinnable not-tried not-tunable not-tuned not-verified not-writable pin-refused
query-error search-unreadable share-invalid single-choice table-damaged too-much try-again
unsafe-path usage-error worker-died
"""


def codes_below(root: type[BaseException]) -> set[str]:
    return {error_code(root)}.union(*map(codes_below, root.__subclasses__()))


def test_codes_of_errors_stay() -> None:
    """Scripts compare them: renaming a class changes what they get."""
    assert set(CODES.split()) <= codes_below(RocmTuiError) | codes_below(StoreError)


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "hint"),
    [
        ("show zzz --json", 1, "no-such-tuning", "`rocm-tui ls` lists the ids of tunings"),
        ("ls --jsn --json", 2, "no-such-option", "rocm-tui ls --help"),
        ("measure --json", 2, "usage-error", None),
        ("import --json", 2, "missing-parameter", "rocm-tui import --help"),
        ("lint missing.csv --json", 1, "cache-unreadable", None),
        ("import missing.json --json", 1, "share-invalid", None),
    ],
)
def test_an_error_is_one_document_and_one_line(
    capsys: pytest.CaptureFixture[str],
    words: str,
    exit_code: int,
    code: str,
    hint: str | None,
) -> None:
    assert main(words.split()) == exit_code
    captured = capsys.readouterr()
    error = document(captured.out, "error")["error"]
    assert (error["code"], error["hint"]) == (code, hint)
    assert error["message"] in captured.err and captured.err.count("\n") == 1
    assert main([word for word in words.split() if word != "--json"]) == exit_code
    assert capsys.readouterr().out == ""


def test_json_of_a_program_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--timeout", "0", "--", "prog", "--json"]) == 2
    assert capsys.readouterr().out == ""

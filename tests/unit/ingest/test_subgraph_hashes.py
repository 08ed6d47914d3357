"""Sources that tell of subgraphs: the line breaks of a hash are kept, and nobody sees them."""

from __future__ import annotations

import json
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningMeasured, TuningStarted
from backend.model.session import Fault, Session
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.cache_file import parse
from rocm_tui.ingest.records import MeasurementSeen, Seen
from tests.support.device_modules import MM
from tests.support.subgraphs import decompose_k

HASH = decompose_k(4)


def test_a_cache_with_subgraphs_is_read(tmp_path: Path) -> None:
    times = {"mm-c1": 1.5, HASH: 2.5}
    document = {"cache": {"mm": {MM: {"highest": times, "high": {"mm\n-c1": 1.0}}}}}
    seen, fault = parse(json.dumps(document).encode(), str(tmp_path / "cache" / "5"))
    assert isinstance(seen, Seen) and [c.hash for c in seen.tuning.choices] == ["mm-c1", HASH]
    assert isinstance(fault, Fault) and "control characters" in fault.what


def test_a_session_log_tells_the_hash_of_the_cache(tmp_path: Path) -> None:
    writer = EventWriter(Layout(tmp_path), Session("s", "node", 9, started=1.8e9))
    offers = (Choice("decompose_k_mm_4_split_0", HASH), Choice("mm", "mm\x1b[2J-c1"))
    operands = ((64, 32), (32, 16)), ((32, 1), (16, 1)), ("torch.float16",) * 2
    writer.write(TuningStarted(1, 1.8e9, "mm", MM, "highest", *operands, "cuda", offers))
    writer.write(ChoiceTimed(1, HASH, 0.01))
    writer.write(ChoiceSelected(1, 1.8e9, HASH, "timing", 1.0, 1.0))
    timed = MeasuredChoice(HASH, 1.0, 0.9, 1.1, 0.0, 9, 1.0, 1.0, 1.0, "tied", None, None)
    writer.write(TuningMeasured(Measurement("mm", MM, "highest", 1.8e9, (timed,), trouble=(HASH,))))
    writer.close()
    (path,) = Layout(tmp_path).sessions.iterdir()
    assert all(line.startswith("{") for line in path.read_text().splitlines()), "a line an event"
    records = read_sources([str(path)])
    tuning = [record.tuning for record in records if isinstance(record, Seen)][-1]
    assert {choice.hash: choice.ms for choice in tuning.choices} == {HASH: 0.01, "mm-c1": None}
    assert tuning.selected == HASH
    (seen,) = [record for record in records if isinstance(record, MeasurementSeen)]
    assert seen.measurement.of(HASH) is not None
    assert "\n" not in seen.measurement.trouble[0], "only a hash has line breaks"

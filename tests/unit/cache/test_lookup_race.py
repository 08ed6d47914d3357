"""Two threads of one program that look up and tune at the same time."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.safe import load_json
from backend.pins.holders import pinned_choices

SLOWLY = 0.5
"""Seconds that reading the file takes in the slow thread."""


def test_a_thread_that_reads_slowly_hides_nothing_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache" / "s"
    path.parent.mkdir()
    old = {"mm": {"[old]": {"highest": {"c0": 1.0}}}}
    path.write_text(json.dumps({"system": {}, "cache": old}, indent=4))
    cache = TunedCache(path, {}, lambda line: pytest.fail(line), pinned_choices)
    reading = threading.Event()
    go_on = threading.Semaphore(0)

    def load_slowly(file: Path, data: bytes) -> dict[str, Any]:
        if threading.current_thread() is slow:
            reading.set()
            go_on.acquire(timeout=SLOWLY)
        return load_json(file, data)

    monkeypatch.setattr("backend.cache.lookup.load_json", load_slowly)
    slow = threading.Thread(target=cache.view)
    slow.start()
    try:
        assert reading.wait(60)
        cache.insert([Tuned("mm", "[new]", "highest", {"c0": 2.0}, time.time())])
        assert inputs_in(cache) == {"[old]", "[new]"}
        reading.clear()
        go_on.release()
        # Were the index not locked, the slow thread would now have put its older content into it,
        # noticed the change, and begun to read again with an empty index.
        reading.wait(SLOWLY)
        assert inputs_in(cache) == {"[old]", "[new]"}
    finally:
        go_on.release(9)
        slow.join()
    assert inputs_in(cache) == {"[old]", "[new]"}


def inputs_in(cache: TunedCache) -> set[str]:
    by_inputs = cache.view().get("mm", {})
    return {inputs for inputs in ("[old]", "[new]") if inputs in by_inputs}

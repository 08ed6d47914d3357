"""What was seen of a pin in generated code is kept with it, until something changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.model.session import Session
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from rocm_tui.render.pins import proof_text, proved
from rocm_tui.session.attachments import with_torch
from tests.support.pin_lab import KEY, TIMES, cache_file, make_layout, read, write


def only(store: PinStore) -> PinStatus:
    (status,) = store.status()
    return status


def test_kept_until_tuned_again_or_drifted(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    pin = store.pin(None, KEY, "Cpp-c2").pin
    assert proved(only(store)) == "" and only(store).proof is None
    assert PinStore(layout).keep_proof(pin, ok=True, by="verify", torch="2.13.0", what="seen")
    status = only(store)
    assert status.state == "active" and not status.stale
    assert proved(status).startswith("✓ ") and "by verify, torch 2.13.0" in proof_text(status)
    assert (store.history()[-1].what, store.history()[-1].note) == ("verify", "seen")
    held = cache_file(layout).read_bytes()

    entries = read(layout)["mm"]
    entries[KEY.inputs]["highest"]["mm-c1"] *= 0.5
    write(layout, {"mm": entries})
    assert only(store).stale == "it was tuned again since"
    cache_file(layout).write_bytes(held)
    assert not only(store).stale

    write(layout, {"mm": {KEY.inputs: {"highest": TIMES, "high": {"mm-c1": 3.0, "Cpp-c2": 1.0}}}})
    store.reconcile()
    assert only(store).state == "active" and only(store).stale == "it drifted since"
    assert proved(only(store)) == "✓?"
    assert PinStore(layout).keep_proof(pin, ok=False, by="program")
    assert proved(only(store)).startswith("✗ ") and not only(store).stale

    store.pin(None, KEY, "mm-c1")
    assert only(store).proof is None, "another choice"
    assert not PinStore(layout).keep_proof(pin, ok=True, by="verify")


def test_another_torch_makes_it_stale(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    pin = store.pin(None, KEY, "mm-c1").pin
    PinStore(layout).keep_proof(pin, ok=True, by="verify", torch="2.13.0")
    status = only(store)
    assert status.proof is not None
    later = Session("s", torch="2.14.0", system_hash=pin.system_hash, started=status.proof.when + 1)
    for session, stale in (
        (later, "torch 2.14.0 ran since"),
        (replace(later, torch="2.13.0"), ""),
        (replace(later, started=status.proof.when - 1), ""),
        (replace(later, system_hash="another"), ""),
    ):
        assert [one.stale for one in with_torch([status], {"s": session})] == [stale]


def test_json_and_a_file_that_does_not_hold_a_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = make_layout(tmp_path)
    pin = PinStore(layout).pin(None, KEY, "mm-c1").pin
    PinStore(layout).keep_proof(pin, ok=True, by="verify", torch="2.13.0")
    assert main(["pins", "--json", "--cache-dir", str(tmp_path)]) == 0
    (told,) = json.loads(capsys.readouterr().out)["pins"]
    when = told["verified"].pop("when")
    assert when > 0
    assert told["verified"] == {"ok": True, "by": "verify", "torch": "2.13.0", "stale": None}
    document = json.loads(layout.pins.read_text())
    for when in ("yesterday", 1e300):
        document["pins"][0]["proof"] = {"when": when, "ok": True, "by": "verify"}
        layout.pins.write_text(json.dumps(document))
        with pytest.raises(StoreError):
            PinStore(layout).pins()

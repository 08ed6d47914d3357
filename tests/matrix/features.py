"""The features, in the order in which they are tried. Each raises `No`, or works."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.events import ChoiceSelected, ChoiceTimed, Event, HooksOff, TuningStarted
from tests.matrix.hosts import agreed
from tests.matrix.lab import PARTS, Lab, No, Tuning, must

STOCK, GRAPHS, HOOKED, TEMPLATES = "stock", "graphs", "hooked", "templates"
"""The cache dirs."""

_FEW = {"ROCM_TUI_TEMPLATE_BUDGET": "2"}


def reading(lab: Lab) -> None:
    """Stock PyTorch tunes; its cache and its log tell the same."""
    cache = lab.cache(STOCK)
    ran = lab.program(cache)
    log = lab.folder / "stock.log"
    log.write_text(ran.stderr)
    kept, told = lab.tunings(cache), lab.tunings(cache, str(log))
    for part in PARTS:
        names = [name.split("-")[0] for name in kept[part].hashes]
        must(
            len(told[part].choices) == len(names),
            f"{part}: the log tells of {len(told[part].choices)} choices, the cache of {names}",
        )
        called = ran.calls(part, kept[part].hashes)
        must(called == kept[part].hashes[0], f"{part}: `ls` has another winner than the code")


def graph_text(lab: Lab) -> None:
    """A compiled graph is found by a pin of another choice, and by none of its own."""
    cache = lab.cache(GRAPHS)
    shutil.copytree(lab.cache(STOCK), cache, dirs_exist_ok=True)
    evicted = Layout(cache).evicted
    tuning = lab.tunings(cache)["bmm"]  # torch keeps no graph of a packed weight
    before, graphs = _files(evicted), _names(Layout(cache).fxgraph)
    must(graphs, "torch kept no graph")
    lab.ask(cache, "pin", tuning.id, "#1")
    try:
        must(_files(evicted) == before, "a pin of the winner moved its own graph")
        lab.ask(cache, "unpin", tuning.id)
        lab.ask(cache, "pin", tuning.id, "#2")
        must(_files(evicted) > before, "the graph that calls another choice was not found")
        lab.program(cache)
        (status,) = lab.asked(cache, "pins", codes=(0, 1))["pins"]
        must(status["state"] == "active", f"its own graph is there, the pin is {status['state']}")
        moved = _files(evicted)
        lab.asked(cache, "pins", "--reconcile", codes=(0, 1))
        must(_files(evicted) == moved, "the graph that calls the pinned choice was moved")
    finally:
        lab.ask(cache, "unpin", tuning.id)
    must(_names(Layout(cache).fxgraph) == graphs, "unpin did not bring the graph back")


def pin_on_stock(lab: Lab) -> None:
    """Stock PyTorch, warm, calls what is pinned; after unpin all is as before, byte for byte."""
    cache = lab.cache(STOCK)
    before = _cache_bytes(lab)
    tunings = lab.tunings(cache)
    for tuning in tunings.values():
        lab.ask(cache, "pin", tuning.id, "#2")
    _calls(lab, STOCK, tunings, 1)
    try:
        for part, tuning in tunings.items():
            lab.ask(cache, "unpin", tuning.id)
            must(not lab.tunings(cache)[part].pinned, "unpin left a pin")
    finally:
        same = _cache_bytes(lab) == before
    must(same, "after unpin the cache file differs")
    _calls(lab, STOCK, tunings, 0)


def verify(lab: Lab) -> None:
    """`verify` names the pinned choice, and says no where the program would call another."""
    cache = lab.cache(STOCK)
    tunings = lab.tunings(cache)
    file = _cache_file(lab)
    before = file.read_bytes()
    for tuning in tunings.values():
        lab.ask(cache, "pin", tuning.id, "#2")
    try:
        told = lab.asked(cache, "verify", torch=True, codes=(0, 1))["pins"]
        for result in told:
            must(result["ok"], str(result.get("reason")))
        called = {result["hash"] for result in told}
        wanted = {tuning.hashes[1] for tuning in tunings.values()}
        must(called == wanted, f"it says {sorted(called)}, pinned are {sorted(wanted)}")
        held = file.read_bytes()
        file.write_bytes(before)  # as a process does that read the file before the pin
        _drop_graphs(lab, STOCK)
        id_ = tunings["bmm"].id
        (result,) = lab.asked(cache, "verify", id_, torch=True, codes=(0, 1))["pins"]
        must(not result["ok"], "it says yes where the cache takes another choice")
        file.write_bytes(held)
    finally:
        for tuning in tunings.values():
            lab.ask(cache, "unpin", tuning.id)


def measure(lab: Lab) -> None:
    """`measure` times both choices of each part again, in turn."""
    cache = lab.cache(STOCK)
    for tuning in lab.tunings(cache).values():
        told = lab.asked(
            cache, "measure", tuning.id, "#1", "#2", "--budget", "2", torch=True, codes=(0, 1)
        )
        again = {choice["hash"] for choice in told["measurement"]["choices"]}
        must(again == set(tuning.hashes[:2]), f"{tuning.op}: measured were {sorted(again)}")


def tune(lab: Lab) -> None:
    """`tune` writes new times of the same choices under the very same key."""
    cache = lab.cache(STOCK)
    before = lab.tunings(cache)
    for part, tuning in before.items():
        lab.ask(cache, "tune", tuning.id, torch=True)
        after = lab.tunings(cache)[part]
        must(after.inputs == tuning.inputs, f"{part}: the times are under {after.inputs}")
        must(set(after.hashes) == set(tuning.hashes), f"{part}: tuned were {after.hashes}")
        must(dict(after.choices) != dict(tuning.choices), f"{part}: the cache has the old times")
    file = _cache_file(lab)
    tuned = file.read_bytes()
    _drop_graphs(lab, STOCK)
    lab.program(cache)
    must(file.read_bytes() == tuned, "the next compile tuned again, under another key")


def records(lab: Lab) -> None:
    """Under `run` a session has each tuning: choices, their times as in the cache, the winner."""
    cache = lab.cache(HOOKED)
    ran = lab.program(cache, "run")
    kept = lab.tunings(cache, str(Layout(cache).root / "cache"))
    events = lab.events(cache)
    for part, tuning in kept.items():
        started, rest = _tuning(events, tuning)
        times = {event.hash: event.ms for event in rest if isinstance(event, ChoiceTimed)}
        must(times == dict(tuning.choices), f"{part}: recorded {times}, cached {tuning.choices}")
        must({c.hash for c in started.choices} == set(times), f"{part}: choices without a time")
        called = ran.calls(part, tuning.hashes)
        _selected(rest, called, "timing")


def obeys(lab: Lab) -> None:
    """Under `run` a pin is taken without timing anything, and is recorded as the reason."""
    cache = lab.cache(HOOKED)
    tunings = lab.tunings(cache)
    for tuning in tunings.values():
        lab.ask(cache, "pin", tuning.id, "#2")
    _drop_graphs(lab, HOOKED)
    ran = lab.program(cache, "run")
    events = lab.events(cache)
    for part, tuning in tunings.items():
        called = ran.calls(part, tuning.hashes)
        must(called == tuning.hashes[1], f"{part}: the code calls {called}, not the pinned choice")
        _, rest = _tuning(events, tuning)
        _selected(rest, called, "pin")
    must(not any(isinstance(e, ChoiceTimed) for e in events), "it timed choices in spite of pins")
    for tuning in tunings.values():
        lab.ask(cache, "unpin", tuning.id)


def templates(lab: Lab) -> None:
    """Our kernels are offered and timed; pinned, they are called, right and verified; and stock
    PyTorch takes its own best."""
    cache = lab.cache(TEMPLATES)
    lab.program(cache, "run", "--templates", env=_FEW)
    tunings = lab.tunings(cache)
    own: dict[str, str] = {}
    for part, tuning in tunings.items():
        ours = [name for name in tuning.hashes if name.startswith("rocm_")]
        must(ours, f"{part}: none of ours among {tuning.hashes}")
        own[part] = ours[0]
        lab.ask(cache, "pin", tuning.id, ours[0])
    ran = lab.program(cache, "run", "--templates", env=_FEW)
    for part, tuning in tunings.items():
        called = ran.calls(part, tuning.hashes)
        must(called == own[part], f"{part}: the code calls {called}, not ours, which is pinned")
    for result in lab.asked(cache, "verify", torch=True, codes=(0, 1))["pins"]:
        must(result["ok"], f"verify of ours: {result.get('reason')}")
    stock = lab.program(cache)
    for part, tuning in tunings.items():
        theirs = [name for name in tuning.hashes if not name.startswith("rocm_")]
        called = stock.calls(part, theirs)
        must(called == theirs[0], f"{part}: stock calls {called}, its best is {theirs[0]}")


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    work: Callable[[Lab], None]


FEATURES = (
    Feature("log and cache read", reading),
    Feature("graph text", graph_text),
    Feature("pin on stock, warm; unpin to the byte", pin_on_stock),
    Feature("verify", verify),
    Feature("measure", measure),
    Feature("tune", tune),
    Feature("`run` records", records),
    Feature("`run` obeys a pin", obeys),
    Feature("`run --templates`", templates),
    Feature("`agree`, two ranks", lambda lab: agreed(lab, lab.cache(HOOKED))),
)
DOCTOR = "doctor says so"


def doctor(lab: Lab, works: dict[str, str]) -> None:
    """What doctor says of hooks and templates is what was seen; `works` has the reasons of noes."""
    told = {
        check["name"]: check["verdict"]
        for check in lab.asked(lab.cache(STOCK), "doctor", torch=True, codes=(0, 1))["checks"]
    }
    for name, feature in (("hooks", "`run` records"), ("templates", "`run --templates`")):
        must(name in told, f"doctor does not speak of {name}")
        says, seen = told[name] == "ok", not works[feature]
        must(says == seen, f"doctor says {told[name]!r} of {name}, seen was {seen}")


def tried(lab: Lab) -> Iterator[tuple[str, str]]:
    """Each feature and why it does not work; nothing if it does."""
    works: dict[str, str] = {}
    for feature in FEATURES:
        works[feature.name] = _reason(functools.partial(feature.work, lab))
        yield feature.name, works[feature.name]
    yield DOCTOR, _reason(functools.partial(doctor, lab, works))


def _reason(work: Callable[[], None]) -> str:
    try:
        work()
    except No as no:
        return " ".join(str(no).split()) or "no"
    except (OSError, LookupError, TypeError, ValueError) as error:  # an answer of another form
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def _tuning(events: list[Event], tuning: Tuning) -> tuple[TuningStarted, list[Event]]:
    off = next((event.reason for event in events if isinstance(event, HooksOff)), "")
    must(not off, off)
    for event in events:
        if isinstance(event, TuningStarted) and event.inputs == tuning.inputs:
            rest = [e for e in events if e is not event and getattr(e, "n", None) == event.n]
            return event, rest
    raise No(f"no tuning of {tuning.op} was recorded under {tuning.inputs}")


def _selected(events: list[Event], name: str, why: str) -> None:
    ends = [event for event in events if isinstance(event, ChoiceSelected)]
    told = [(event.hash, event.by) for event in ends]
    must(told == [(name, why)], f"recorded as selected: {told}, and it was {name}, by {why}")


def _calls(lab: Lab, name: str, tunings: dict[str, Tuning], place: int) -> None:
    ran = lab.program(lab.cache(name))
    for part, tuning in tunings.items():
        called = ran.calls(part, tuning.hashes)
        must(called == tuning.hashes[place], f"{part}: the code calls {called}")


def _cache_file(lab: Lab) -> Path:
    files = list(Layout(lab.cache(STOCK)).autotune.glob("*"))
    must(len(files) == 1, f"there are {len(files)} autotune caches")
    return files[0]


def _cache_bytes(lab: Lab) -> bytes:
    return _cache_file(lab).read_bytes()


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _drop_graphs(lab: Lab, name: str) -> None:
    """As a new version of the model would have it: everything is compiled again."""
    layout = Layout(lab.cache(name))
    for folder in (layout.fxgraph, layout.aotautograd):
        shutil.rmtree(folder, ignore_errors=True)

"""Odd things in the place of each file of ours, and a disk that refuses drawn writes.

Promised: each command ends soon, with an exit code that means something, and shows no traceback; a
program that tunes goes on; what was there before is still there.
"""

from __future__ import annotations

import errno
import io
import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.errors import StoreError, UnsafePath
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from tests.campaign import Figure
from tests.support.odd_files import KINDS, put_odd

SECONDS = 20
MEMORY = 3 << 30
KEY = TuningKey("mm", "[a]", "highest")
PLACES = (
    *("cache", "cache/s", "cache/.s.rocm_tui.tmp", "cache/.s.rocm_tui.displaced", "fxgraph"),
    *("rocm_tui", "rocm_tui/pins.json", "rocm_tui/.pins.json.rocm_tui.tmp", "rocm_tui/evicted"),
    *("rocm_tui/sessions", "rocm_tui/sessions/x.jsonl", "rocm_tui/locks", "rocm_tui/tuned"),
    *("rocm_tui/locks/rocm_tui-pins.json.lock", "rocm_tui/locks/cache-s.lock"),
    *("rocm_tui/locks/tuned-s.lock", "rocm_tui/tuned/s.jsonl", "rocm_tui/tuned/s.kept.jsonl"),
    *("rocm_tui/tuned/.s.jsonl.rocm_tui.tmp", "rocm_tui/tuned/s.folded.jsonl"),
    "rocm_tui/tuned/.s.folded.jsonl.rocm_tui.tmp",
)
COMMANDS = (
    ("ls",), ("ls", "--json"), ("pins",), ("pins", "--reconcile"), ("pins", "--json"),
    ("pin", "ID", "c1"), ("unpin", "--all"), ("unpin", "ID"), ("show", "ID"), ("tuning",),
)  # fmt: skip


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    cases = [(place, kind, words) for place in PLACES for kind in KINDS for words in COMMANDS]
    rng.shuffle(cases)
    bad: list[str] = []
    tries = 0
    for words in COMMANDS:  # children would else import everything anew
        _command(_made(folder / "well"), words)
    for place, kind, words in cases:
        if time.monotonic() > end - seconds / 3:
            break
        tries += 1
        wrong = _odd(folder / "odd", place, kind, words)
        if wrong:
            bad.append(f"{kind} at {place}, {' '.join(words)}: {wrong}")
    note = bad[0] if bad else f"{len(PLACES)} places, {len(KINDS)} kinds, {len(COMMANDS)} commands"
    yield Figure("disk: commands with an odd file", tries, len(bad), "0", note)

    faults, broken = 0, []
    while time.monotonic() < end:
        faults += 1
        code, at = rng.choice([errno.ENOSPC, errno.EIO, errno.EROFS]), rng.randint(1, 40)
        wrong = _faulty(folder / "faulty", code, at)
        if wrong:
            broken.append(f"{errno.errorcode[code]} from the write {at} on: {wrong}")
    note = broken[0] if broken else ""
    yield Figure("disk: tunings and pins while writes fail", faults, len(broken), "0", note)


def _made(root: Path) -> Layout:
    shutil.rmtree(root, ignore_errors=True)
    layout = Layout(root)
    layout.autotune.mkdir(parents=True)
    times = {"mm": {inputs: {"highest": {"c0": 1.0, "c1": 2.0}} for inputs in ("[a]", "[b]")}}
    (layout.autotune / "s").write_text(json.dumps({"system": {}, "cache": times}, indent=4))
    layout.fxgraph.mkdir()
    PinStore(layout).pin("s", TuningKey("mm", "[b]", "highest"), "c1")
    _tune(layout, "[c]")
    layout.sessions.mkdir()
    return layout


def _tune(layout: Layout, inputs: str) -> None:
    cache = TunedCache(layout.autotune / "s", {}, lambda text: None, pinned_choices)
    cache.view()
    cache.insert([Tuned("mm", inputs, "highest", {"c0": 3.0}, time.time())])
    assert cache.view()["mm"].get(inputs), "the program does not know what it measured"


def _odd(root: Path, place: str, kind: str, words: tuple[str, ...]) -> str:
    layout = _made(root)
    path = root / place
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        put_odd(path, kind)
    return _child(lambda: _command(layout, words))


def _command(layout: Layout, words: tuple[str, ...]) -> str:
    """What is wrong with how the command ended."""
    if words == ("tuning",):
        with suppress(UnsafePath):  # PyTorch keeps them
            _tune(layout, "[d]")
        return ""
    name = KEY.id
    told = io.StringIO()
    with redirect_stdout(told), redirect_stderr(told):
        try:
            code: Any = main(
                [name if w == "ID" else w for w in words] + ["--cache-dir", str(layout.root)]
            )
        except SystemExit as error:
            code = error.code
    text = told.getvalue()
    if code not in (0, 1, 2):
        return f"exit code {code}"
    return f"a traceback: {text[-300:]}" if "Traceback" in text else ""


def _faulty(root: Path, code: int, at: int) -> str:
    layout = _made(root)
    wrong = _child(lambda: _with_faults(layout, code, at))
    if wrong:
        return wrong
    try:
        document = json.loads((layout.autotune / "s").read_bytes())
        pins = [pin.inputs for pin in PinStore(layout).pins()]
    except Exception as error:
        return f"afterwards: {error}"
    there = document["cache"]["mm"].keys() >= {"[a]", "[b]", "[c]"}
    return "" if there and "[b]" in pins else f"lost: {sorted(document['cache']['mm'])}, {pins}"


def _with_faults(layout: Layout, code: int, at: int) -> str:
    """Tune and pin in this process, while each write from the `at`-th on fails."""
    count = 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= at:
                raise OSError(code, os.strerror(code))
            return function(*args, **kwargs)

        return call

    for name in ("write", "replace", "mkdir", "link", "fsync"):
        setattr(os, name, failing(getattr(os, name)))
    real = os.open
    os.open = lambda path, flags, *rest, **more: (
        failing(real) if flags & (os.O_WRONLY | os.O_RDWR) else real
    )(path, flags, *rest, **more)
    _tune(layout, "[d]")
    with suppress(StoreError):
        PinStore(layout).pin("s", KEY, "c1")
    with suppress(StoreError):
        PinStore(layout).reconcile(thorough=True)
    _tune(layout, "[e]")
    return ""


def _child(action: Callable[[], str]) -> str:
    """What is wrong, in a process with little time and memory; nothing where all is well."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = ""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            said = action()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.dup2(writing, 0)
            with os.fdopen(0, "w") as stream:
                stream.write(said[:2000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    _, status = os.waitpid(pid, 0)
    return f"took more than {SECONDS} s" if os.WIFSIGNALED(status) else said

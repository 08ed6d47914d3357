"""Words that a terminal would obey, planted wherever the program reads a text.

As a program it is a worker that says them: `python tests/support/hostile_lab.py FOLDER`.
"""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.sharing.share import share_text

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceFailed, ChoiceSelected, ChoiceTimed, HooksOff, TuningStarted
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.store import PinStore
from backend.sharing.share import Machine, PinExport, SharedPin
from backend.worker.protocol import EventSender

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b]0;OWNED\x1b\\\x1b[2J\x9b31m\u202e\x7f\x08\r\n\x00\ud800"
"""Clipboard, title, clear, C1, direction, DEL, backspace, another line, NUL, half a character."""
NAME = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e\n\udcff"
"""The same for a name of a file."""
MM = "[('cpu', 'torch.float32', 20, 40, 40, 1, 0), ('cpu', 'torch.float32', 40, 24, 24, 1, 0)]"
KEY = TuningKey("mm", MM, "highest")
LOG = """AUTOTUNE mm(20x40, 40x24)
strides: [40, 1], [24, 1]
dtypes: torch.float32{evil}, torch.float32
  triton_{evil}mm_1 0.0100 ms 100.0% BLOCK_M=16{evil}, num_warps=4
  mm{evil} 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 0.5 seconds precompiling for 2 choices
"""


@dataclass(frozen=True)
class Planted:
    """Where the words are."""

    layout: Layout
    log: Path
    mm_log: Path
    share: Path
    mega_cache: Path
    python: Path
    id: str


def plant(folder: Path) -> Planted:
    """A cache dir, logs, an export and an interpreter: all that is read, with EVIL in it."""
    folder = folder / f"box{NAME}"
    layout = Layout(folder / "inductor")
    layout.autotune.mkdir(parents=True)
    times = {"mm-c1": 0.5, "triton_mm-c2": 0.25, f"bad{EVIL}-c3": 0.75}
    cache = {"mm": {MM: {"highest": times}}, EVIL: {EVIL: {EVIL: {EVIL: 1.0, "a": EVIL}}}}
    system = {"device": {"name": EVIL}, "version": {"triton": EVIL}}
    (layout.autotune / "hash").write_text(json.dumps({"system": system, "cache": cache}))
    (layout.autotune / f"other{NAME}").write_text(f"no json {NAME}", "utf-8", "surrogateescape")
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1", label=f"old{EVIL}", note=EVIL)
    store.unpin(KEY)
    store.pin(None, KEY, "mm-c1", label=f"label{EVIL}", note=EVIL, config={"BLOCK_M": EVIL})
    pins = json.loads(layout.pins.read_text())
    for part in (*pins["pins"], *pins["history"]):
        part["who"] = EVIL
    layout.pins.write_text(json.dumps(pins))
    _session(layout)
    log, mm_log = folder / f"log{NAME}.log", folder / f"mm{NAME}.json"
    evil = EVIL[: EVIL.index("\r")]  # a NUL would make the file a binary one
    text = LOG.replace("{evil}", evil) + f"{evil} AUTOTUNE "
    log.write_bytes(text.encode("utf-8", "surrogatepass"))
    entry = {"(20, 40, 24)": [{"time": 1.0, EVIL: EVIL}], "kernel_type": f"mm{EVIL}"}
    flex = {"query_shape": f"[2{EVIL}", "kernel_type": "forward", "key_shape": EVIL, "choices": [
        {"type": "triton", "time": 1.0, "BLOCK_M": 64, "BLOCK_N": EVIL, EVIL: EVIL,
         "num_warps": EVIL, "num_stages": 1}]}  # fmt: skip
    conv = {"input_shape": EVIL, "kernel_type": EVIL, "choices": [{"time": 1.0, EVIL: EVIL}]}
    mm_log.write_text(json.dumps([entry, EVIL, flex, conv]))
    share, mega_cache, python = (
        folder / f"share{NAME}",
        folder / f"mega_cache{NAME}",
        folder / "python",
    )
    share.write_text(_share())
    mega_cache.write_bytes(EVIL.encode("utf-8", "surrogatepass") * 9)
    python.write_text(
        '#!/bin/sh\n[ "$1" = -c ] && exit 0\n'  # "does it have torch?"
        f"exec {sys.executable} {__file__}\n"
    )
    python.chmod(0o755)
    return Planted(layout, log, mm_log, share, mega_cache, python, store.pins()[0].id)


def _session(layout: Layout) -> None:
    session = Session(
        f"id{EVIL}", host=f"h{EVIL}", pid=1, argv=(EVIL,), python=EVIL, torch=EVIL, device=EVIL,
        arch=EVIL, cache_dir=EVIL, started=1.0, backends=("ATEN", f"CK{EVIL}"),
        absent=(f"CK: {EVIL}", EVIL), modes=(EVIL,), threads=2,
    )  # fmt: skip
    writer = EventWriter(layout, replace(session, host="h"))
    writer.session = session
    shapes, strides = ((20, 40), (40, 24)), ((40, 1), (24, 1))
    choices = (
        Choice(f"mm{EVIL}", "mm-c1", description=f"A={EVIL}"),
        Choice(f"triton{EVIL}", f"triton_mm{EVIL}-c2", description=EVIL),
    )
    for n, op, inputs in ((1, "mm", MM), (2, f"bmm{EVIL}", EVIL)):
        for event in (
            TuningStarted(n, 2.0, op, inputs, EVIL, shapes, strides, (EVIL, EVIL), EVIL, choices),
            ChoiceTimed(n, "mm-c1", 0.5),
            ChoiceFailed(n, choices[1].hash or "", "benchmark", EVIL),
            ChoiceSelected(n, 2.0, EVIL, "timing", 1.0, 1.0),
            HooksOff(3.0, EVIL),
        ):
            assert writer.write(event)
    writer.close()


def _share() -> str:
    gpu = Machine("gfx942", 304, "MI300X", "2.13.0", "3.6", "7.1", None, "cafe", "gpu7")
    text = EVIL.replace("\ud800", "")
    pin = SharedPin(
        *("mm", MM, "highest", "mm-c1", f"label{text}"), machine=gpu, config={"A": text},
        timings={"highest": {"mm-c1": 0.5}}, who=text, when=1.7e9, note=text,
    )  # fmt: skip
    return share_text(PinExport((pin,), text, 1.7e9))


def bytes_of(words: Sequence[str], env: dict[str, str] | None = None) -> tuple[int, bytes]:
    """The exit code of a command in a terminal of its own, and every byte that it sent there."""
    pid, terminal = pty.fork()
    if pid == 0:
        code = 70
        try:
            os.environ.update(env or {})
            for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
                stream = open(descriptor, "r" if descriptor == 0 else "w", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)
            from rocm_tui.cli.entry import main

            try:
                code = main(list(words))
            except SystemExit as error:
                code = int(error.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)
    found = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        found += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), found


def obeyed(sent: bytes) -> list[str]:
    """What of these bytes a terminal would do something for, but for the ends of lines and the live
    line of a job, which is ours. Raises UnicodeDecodeError for half a character."""
    text = sent.replace(b"\r\x1b[K", b"").replace(b"\r\n", b"\n").decode()
    return [repr(c) for c in text if not c.isprintable() and c not in "\n\t\xa0"]


def _work() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        answers = EventSender(1, job["id"], job["token"])
        print(NAME.encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)
        answers.progress(EVIL, best=EVIL, timed=1, total=4)
        if job["job"] == "environment":
            names = "torch hip triton triton_target triton_off hooks_off templates_off device arch"
            facts = dict.fromkeys(names.split(), EVIL)
            answers.result({**facts, "system_hash": "hash", "compute_units": 4, "gpu": True})
        else:
            answers.error(EVIL)


if __name__ == "__main__":
    _work()

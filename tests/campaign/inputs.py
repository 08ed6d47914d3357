"""Mutated inputs to every reader: no exception, no second, no memory beyond ten times the input.

Each try has a name, `reader:number`, from which with the seed the very input follows. A process of
its own for each core reads; one that dies takes one try with it and is replaced.
`ROCM_TUI_CORPUS` names a folder of real logs, caches and traces to start from besides.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from tests.campaign import Figure, _mutate, _seeds
from tests.campaign._readers import READERS, REFUSALS, Reader

SECOND = 1.0
"""Of the processor, not of the clock: the machine may be busy."""
HANG = 20.0
"""Seconds of the processor after which a reader is stopped."""
FLOOR = 24 << 20
"""Bytes that reading a small input may take: Python's own tables grow by pages."""
TIMES = 10
ROOM = 3 << 30
"""Bytes of address space: a reader that wants more meets a MemoryError."""
BATCH = 64
BIG = 400
"""One input in so many is about a megabyte."""
GOAL = "0 of 1,000,000"


class TooLong(BaseException):
    """Nobody catches this but us."""


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    """Read for so long, on every core that we may use."""
    names = os.environ.get("ROCM_TUI_READERS", "")
    readers = [r for r in READERS if not names or r.name in names.split(",")]
    begin = time.monotonic()
    found = _all_workers(folder, readers, begin + seconds, seed)
    passed = time.monotonic() - begin
    tries = sum(found["tries"].values())
    busy = resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = tries / (busy.ru_utime + busy.ru_stime)
    note = f"{tries / passed:,.0f} a second, {rate:,.0f} a second of one core; "
    note += f"{len(readers)} readers"
    for what in ("exception", "slow", "memory", "death"):
        faults = [fault for fault in found["faults"] if fault["what"] == what]
        first = f"; first: {faults[0]['name']}: {faults[0]['told']}" if faults else ""
        label = {
            "exception": "inputs that raise",
            "slow": "inputs that take over a second of the processor",
            "memory": f"inputs that take over {TIMES} times their size and {FLOOR >> 20} MiB",
            "death": "inputs that kill the process",
        }[what]
        yield Figure(label, tries, len(faults), GOAL, note + first)
        note = ""
    for fault in found["faults"]:
        print(json.dumps(fault), file=sys.stderr)


def replay(name: str, seed: int, folder: Path) -> bytes:
    """The input of a try that a figure names."""
    reader, _, number = name.rpartition(":")
    (one,) = [r for r in READERS if r.name == reader]
    return _input(one, _seeds.seeds(folder)[one.kind], int(number), seed)


def _all_workers(folder: Path, readers: list[Reader], end: float, seed: int) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    seeds = _seeds.seeds(folder / "seeds")
    found: dict[str, Any] = {"tries": Counter(), "faults": []}
    places = {core: mmap.mmap(-1, 16) for core in range(cores)}
    running: dict[int, int] = {}
    first = dict.fromkeys(range(cores), 0)
    for core in range(cores):
        running[_start(folder, core, places[core], readers, seeds, first[core], end, seed)] = core
    while running:
        pid, status = os.wait()
        if pid not in running:
            continue
        core = running.pop(pid)
        _collect(folder / f"{core}.jsonl", found)
        if status:
            turn, which = struct.unpack("<QQ", places[core][:16])
            reader = readers[which % len(readers)]
            told = f"ended with {os.waitstatus_to_exitcode(status)}"
            name = f"{reader.name}:{turn * cores + core}"
            found["faults"].append({"what": "death", "name": name, "told": told})
            first[core] = turn + 1
            if time.monotonic() < end:
                new = _start(folder, core, places[core], readers, seeds, turn + 1, end, seed)
                running[new] = core
    return found


def _collect(path: Path, found: dict[str, Any]) -> None:
    for line in path.read_text().splitlines() if path.exists() else ():
        told = json.loads(line)
        if "tries" in told:
            found["tries"].update(told["tries"])
        elif not any(
            f["told"] == told["told"] and f["what"] == told["what"] for f in found["faults"]
        ):
            found["faults"].append(told)
        else:  # the same fault again counts, its text does not
            found["faults"].append({**told, "told": "as before"})
    path.unlink(missing_ok=True)


def _start(
    folder: Path, core: int, place: mmap.mmap, readers: list[Reader],
    seeds: dict[str, list[bytes]], first: int, end: float, seed: int,
) -> int:  # fmt: skip
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        own = folder / f"work{core}"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (ROOM, hard))
        signal.signal(signal.SIGVTALRM, _too_long)
        cores = len(os.sched_getaffinity(0))
        with (folder / f"{core}.jsonl").open("w") as out:
            worker = _Worker(own, place, readers, seeds, seed, core, cores, out)
            worker.run(first, end)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


class _Worker:
    """Reads batches, each with one reader; what took too much memory is read again by itself."""

    def __init__(
        self, folder: Path, place: mmap.mmap, readers: list[Reader],
        seeds: dict[str, list[bytes]], seed: int, core: int, cores: int, out: Any,
    ) -> None:  # fmt: skip
        self._folder, self._place, self._readers = folder, place, readers
        self._seeds, self._seed, self._core, self._cores = seeds, seed, core, cores
        self._out = out
        self._told: Counter[str] = Counter()

    def run(self, first: int, end: float) -> None:
        turn = first
        while time.monotonic() < end:
            which = (turn // BATCH) % len(self._readers)
            reader = self._readers[which]
            batch: list[tuple[str, bytes]] = []
            before = _forget_peak()
            for _ in range(BATCH):
                self._place[:16] = struct.pack("<QQ", turn, which)
                number = turn * self._cores + self._core
                data = _input(reader, self._seeds[reader.kind], number, self._seed)
                name = f"{reader.name}:{number}"
                batch.append((name, data))
                self._read(reader, name, data)
                turn += 1
            if _peak() - before > FLOOR:
                self._measure(reader, batch)
            self._out.write(json.dumps({"tries": {reader.name: BATCH}}) + "\n")
            self._out.flush()

    def _read(self, reader: Reader, name: str, data: bytes) -> None:
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
        try:
            reader.read(data, self._folder)
        except REFUSALS:
            pass
        except TooLong:
            pass
        except MemoryError:
            self._tell("memory", name, data, f"MemoryError for {len(data):,} bytes")
        except BaseException as error:
            self._tell("exception", name, data, _said(error))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took = time.process_time() - begin
        if took > SECOND:
            self._tell("slow", name, data, f"{took:.1f} s for {len(data):,} bytes")

    def _measure(self, reader: Reader, batch: list[tuple[str, bytes]]) -> None:
        for name, data in batch:
            before = _forget_peak()
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
                reader.read(data, self._folder)
            except (Exception, TooLong):
                pass
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            taken = _peak() - before
            if taken > max(FLOOR, TIMES * len(data)):
                self._tell("memory", name, data, f"{taken >> 20} MiB for {len(data):,} bytes")

    def _tell(self, what: str, name: str, data: bytes, told: str) -> None:
        self._out.write(json.dumps({"what": what, "name": name, "told": told}) + "\n")
        keep = os.environ.get("ROCM_TUI_KEEP")
        self._told[f"{what} {name.partition(':')[0]} {told[:60]}"] += 1
        if keep and self._told[f"{what} {name.partition(':')[0]} {told[:60]}"] < 4:
            (Path(keep) / f"{what}-{name.replace(' ', '_')}").write_bytes(data)


def _input(reader: Reader, seeds: list[bytes], number: int, seed: int) -> bytes:
    random = drawn(reader, number, seed)
    if random.randrange(BIG) == 0:
        return _mutate.big(random, seeds)
    return reader.mutate(random, seeds)


def drawn(reader: Reader, number: int, seed: int) -> Random:
    """What all of one try follows from."""
    return Random(f"{seed} {reader.name} {number}")


def _said(error: BaseException) -> str:
    """Its type, and where in our code."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/campaign/" not in f.filename]
    last = [f"{Path(f.filename).name}:{f.lineno}" for f in ours[-3:]]
    return f"{type(error).__name__} at {' '.join(last)}: {str(error)[:120]!r}"


def _forget_peak() -> int:
    """Begin to count anew; the memory that is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0

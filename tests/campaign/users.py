"""Two real users on one cache dir: one tunes and pins, the other uses it, and attacks it.

Promised: whoever may not write is told so in one line that says why and what to do, and nothing of
the other is changed; whoever reads sees the pins; nothing that the other planted is run.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.errors import LoadError
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from backend.toolchain import code_cache
from tests.campaign import Figure
from tests.campaign._as_user import FIRST, SECOND, as_user, shared_dir

KEY = TuningKey("mm", "[a]", "highest")
MODES = {
    0o755: "owner alone",
    0o775: "group-writable",
    0o777: "everybody's",
    0o1775: "group-writable, sticky",
    0o1777: "sticky",
}


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    if os.geteuid() != 0:
        yield Figure("users: (needs root to be two users)", 0, 0, "0")
        return
    rng = random.Random(seed)
    library = _library(folder)
    tries: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    first: dict[str, str] = {}
    end = time.monotonic() + min(seconds, 120.0)
    number = 0
    while time.monotonic() < end or number < len(MODES):
        mode = list(MODES)[number] if number < len(MODES) else rng.choice(list(MODES))
        number += 1
        root = shared_dir(folder / str(number), mode)
        for what, wrong in _attempts(root, mode, library, rng):
            tries[what] += 1
            bad[what] += bool(wrong)
            if wrong:
                first.setdefault(what, f"{MODES[mode]}: {wrong}")
    for what, count in tries.items():
        yield Figure(f"users: {what}", count, bad[what], "0", first.get(what, ""))


def may_write(mode: int, owner: bool) -> bool:
    """Whether we write there: only in a folder of one's own in which others rename nothing."""
    return owner and (mode == 0o755 or bool(mode & 0o1000))


def _attempts(
    root: Path, mode: int, library: Path, rng: random.Random
) -> Iterator[tuple[str, str]]:
    layout = Layout(root)
    put_cache(layout)
    users = [FIRST, SECOND]
    rng.shuffle(users)
    for uid in users:
        owner = uid == FIRST
        said = as_user(uid, lambda: PinStore(layout).pin("s", KEY, "c1").numbers)
        yield "a pin where it may, else one line", _judged(said, may_write(mode, owner))
        said = as_user(uid, lambda: insert(layout, "[b]"))
        yield "timings where they may, else one line", _judged(said, may_write(mode, owner))
    pinned = json.dumps([pin.hash for pin in PinStore(layout).pins()])
    for uid in users:
        said = as_user(uid, lambda: json.dumps([p.hash for p in PinStore(layout).pins()]))
        yield "both see the pins", "" if said == pinned else said
    for place in ("code", "triton", "tuned", "locks"):
        as_user(SECOND, _planting(layout, place, library))
        attack = as_user(FIRST, functools.partial(_loaded, layout, place))
        yield "what the other planted is not run", attack if attack == "7" else ""


def _judged(said: str, may: bool) -> str:
    if may:
        return "" if said.isdigit() else said
    told = said.startswith("UnsafePath: ") and "\n" not in said
    hint = any(word in said for word in ("chmod", "TORCHINDUCTOR_CACHE_DIR"))
    return "" if told and hint else said


def put_cache(layout: Layout) -> None:
    """A cache file of the first user's with one tuning."""
    path = layout.autotune / "s"
    times = {"mm": {"[a]": {"highest": {"c0": 1.0, "c1": 2.0}}}}
    path.write_text(json.dumps({"system": {}, "cache": times}, indent=4))
    os.chown(path, FIRST, -1)


def insert(layout: Layout, inputs: str) -> int:
    """Tune as a program under `run` does; how many things went wrong and were told."""
    said: list[str] = []
    cache = TunedCache(layout.autotune / "s", {}, said.append, pinned_choices)
    cache.view()
    cache.insert([Tuned("mm", inputs, "highest", {"c": 1.0}, time.time())])
    if said:
        raise RuntimeError(said[0])
    return 0


def _planting(layout: Layout, place: str, library: Path) -> Callable[[], object]:
    def plant() -> None:
        folder = layout.home / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.so").write_bytes(library.read_bytes())

    return plant


def _loaded(layout: Layout, place: str) -> int:
    """7 if the library that the other planted was loaded."""
    try:
        return code_cache.load(layout.home / place / "kernel.so", layout.root).entry("entry")()
    except LoadError:
        return 0


def _library(folder: Path) -> Path:
    source, path = folder / "kernel.c", folder / "kernel.so"
    source.write_text("int entry(void) { return 7; }")
    subprocess.run(["cc", "-shared", "-o", str(path), str(source)], check=True)
    path.chmod(0o755)
    return path

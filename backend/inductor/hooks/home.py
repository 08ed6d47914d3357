"""Which cache dir is the person's, where the program works in a temporary one.

`torch._inductor.utils.fresh_cache`, and TORCHINDUCTOR_FORCE_DISABLE_CACHES with it, point
TORCHINDUCTOR_CACHE_DIR at a new folder for a while. Nobody looks there for sessions or pins. Both
clear all caches before and after, which we are told; so a folder that came up after such a clearing
is temporary, and one that the program named by itself is not.
"""

from __future__ import annotations

from pathlib import Path

from backend.store import paths


class Home:
    """The cache dir that was in force at `start`, and what became of it."""

    def __init__(self, start: Path) -> None:
        self._home = start
        self._cleared: Path | None = None
        self._fresh: set[Path] = set()

    def cache_clear(self) -> None:
        """All caches of torch are cleared: a temporary one begins or ends. torch calls this."""
        self.current()
        self._cleared = paths.cache_dir()

    def current(self) -> Path:
        """Where to record, and where pins are looked for last."""
        return self.places()[-1]

    def places(self) -> tuple[Path, ...]:
        """The cache dir in force; after it the person's own, if that one is temporary."""
        now = paths.cache_dir()
        if now == self._home:
            return (now,)
        if now not in self._fresh:
            if self._cleared is None or now == self._cleared:
                return (now,)  # named by the program
            self._fresh.add(now)
        return now, self._home


home = Home(paths.cache_dir())
"""That of this process, as it was when the hooks were turned on."""

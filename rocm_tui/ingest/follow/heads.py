"""What the beginning of a file tells before anything is read of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backend.cache.configs import cache_folder
from backend.disk.safe import open_regular
from rocm_tui.ingest.follow.encoded import decoder_of
from rocm_tui.ingest.formats import profiler_trace
from rocm_tui.ingest.formats.reader import NotReadable
from rocm_tui.ingest.formats.registry import HEAD, sniff


def with_tunings(paths: Sequence[str], cache_dir: Path) -> list[str]:
    """`paths`, with the cache dir if there are none, or if none of them can tell of a tuning:
    traces of a profiler do not. Whoever reads nothing else reads Triton's cache, too."""
    if list(paths) == [str(cache_dir)]:
        return [*paths, *own_tritons(cache_dir)]
    if all(format_of(path) == profiler_trace.FORMAT.name for path in paths):
        return [*paths, str(cache_dir), *own_tritons(cache_dir)]
    return list(paths)


def own_tritons(cache_dir: Path) -> list[str]:
    """Triton's cache of this environment, if there is one outside of the cache dir."""
    folder = cache_folder()
    return [str(folder)] if folder.is_dir() and not folder.is_relative_to(cache_dir) else []


def format_of(path: str) -> str:
    """The name of the format of a file; nothing for what is no file that can be read."""
    try:
        with open_regular(Path(path), follow=True) as stream:
            head = stream.read(HEAD)
        decoder = decoder_of(head)
        return sniff(head if decoder is None else next(decoder.feed(head), b""))
    except (OSError, NotReadable):
        return ""

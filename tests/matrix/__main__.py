"""`python -m tests.matrix`: try each version of torch, write the table of docs/limits.md.

With VERSIONs only those are tried, and the answers are printed; so are those of `--python`.
`--newest` tries the newest one, as CI does. The exit code is 1 if anything does not work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.matrix.environments import VERSIONS, NotInstalled, Places, TooSlow
from tests.matrix.features import tried
from tests.matrix.lab import ROOT, Lab
from tests.matrix.table import put, table
from tests.support.hasten import hasten

DOCUMENT = ROOT / "docs" / "limits.md"
KEPT = ROOT / "build" / "matrix"


def main(words: Sequence[str]) -> int:
    args = _parser().parse_args(words)
    hasten()
    if args.python:
        python = interpreter(args.python)
        return _verdict({args.python: _answers(args.python, python)})
    versions = args.versions or list(VERSIONS)
    places = Places(args.torches, args.within)
    try:
        if args.newest:
            versions = [places.newest()]
        pythons = {version: places.python(version) for version in versions}
    except NotInstalled as error:
        which = "the newest" if args.newest else ", ".join(versions)
        print(f"NOT TRIED: torch {which}: {error}")
        return 0 if args.newest and isinstance(error, TooSlow) else 1
    with ThreadPoolExecutor(args.jobs) as pool:
        asked = {
            version: pool.submit(_kept if args.kept else _answers, version, python)
            for version, python in pythons.items()
        }
        found = {version: answers.result() for version, answers in asked.items()}
    if versions == list(VERSIONS):
        DOCUMENT.write_text(put(DOCUMENT.read_text(), table(found)))
    return _verdict(found)


def interpreter(named: str) -> str:
    """Its path from the root: our commands run elsewhere. A link is kept, it tells the environment;
    a bare name is looked up as a shell would."""
    found = shutil.which(named) or named
    return os.path.abspath(found)  # noqa: PTH100


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("versions", nargs="*", choices=[[], *VERSIONS], metavar="VERSION")
    parser.add_argument(
        "--torches", type=Path, metavar="FOLDER", help="has FOLDER/2.8.0/bin/python"
    )
    parser.add_argument("--python", metavar="PATH", help="try the torch of this interpreter")
    parser.add_argument(
        "--newest",
        action="store_true",
        help="only this; no failure if it takes too long to install",
    )
    parser.add_argument("--within", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="versions at once")
    parser.add_argument(
        "--kept", action="store_true", help="ask no version again that this very code was asked of"
    )
    return parser


def _answers(version: str, python: str) -> dict[str, str]:
    begin, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        for name, reason in tried(Lab(python, Path(folder))):
            found[name] = reason
            seconds = f"{time.monotonic() - begin:5.0f} s"
            print(f"{version:<8} {seconds}  {name}: {reason or 'yes'}", flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    _file(version).write_text(json.dumps(found, indent=1))
    return found


def _kept(version: str, python: str) -> dict[str, str]:
    file = _file(version)
    if not file.exists():
        return _answers(version, python)
    answers: dict[str, str] = json.loads(file.read_text())
    return answers


def _file(version: str) -> Path:
    """Named after all that was tried."""
    digest = hashlib.sha256()
    for folder in ("backend", "rocm_tui", "tests/matrix"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".jinja", ".h"):
                digest.update(path.read_bytes())
    return KEPT / f"{version.replace('/', '_')}-{digest.hexdigest()[:16]}.json"


def _verdict(found: dict[str, dict[str, str]]) -> int:
    wrong = [(version, name) for version, a in found.items() for name, why in a.items() if why]
    for version, name in wrong:
        print(f"torch {version}: {name}: {found[version][name]}", file=sys.stderr)
    print(f"{len(found)} version(s) tried, {len(wrong)} thing(s) do not work")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Remove personal data from a report: paths, names of users and hosts, addresses.

What runs here prints tracebacks, so any text may have a path. Paths of the operating system and of
ROCM stay; the folders of this run get a name; of every other path at most the file name stays.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SYSTEM = re.compile(
    r"/(?:opt/(?:rocm|amdgpu)[\w.-]*|usr/(?:bin|s?bin|lib\w*|include|share|src)"
    r"|usr/local/(?:bin|lib|cuda[\w.-]*)|lib\w*|s?bin|sys|proc|dev|etc)(?=/|$)"
)
_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<path>/[^\"'\n]+)(?P=quote)")
_PATH = re.compile(r"(?:^|(?<=[\s\"'`(\[{>=:,;|@])|(?<=-[IL]))/[\w.+@%~-]+(?:/[\w.+@%~-]*)*")
_HIDDEN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "EMAIL"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "ADDRESS"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}::?){3,7}[0-9a-f]{1,4}\b", re.IGNORECASE), "ADDRESS"),
    (re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"), "ADDRESS"),
    (re.compile(r"\bGPU-[0-9a-f-]{8,}\b", re.IGNORECASE), "GPU-ID"),
)


@dataclass(frozen=True)
class Privacy:
    """Folders with the name that each gets in a report; names of the user and of the machine."""

    folders: Mapping[str, str]
    users: Collection[str] = ()
    hosts: Collection[str] = ()

    def value(self, value: Any) -> Any:
        """Return a value of JSON in which every text was cleaned, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def text(self, text: str) -> str:
        for folder in sorted(self.folders, key=len, reverse=True):
            text = re.sub(rf"{re.escape(folder)}(?![\w.-])", self.folders[folder], text)
        text = _QUOTED.sub(lambda m: m["quote"] + _shortened(m["path"]) + m["quote"], text)
        text = _PATH.sub(lambda m: _shortened(m[0]), text)
        for pattern, name in _HIDDEN:
            text = pattern.sub(name, text)
        for names, name, more in (
            (self.hosts, "HOST", r"(?:\.[a-z][\w-]*)*"),
            (self.users, "USER", ""),
        ):
            for word in sorted(names, key=len, reverse=True):
                whole = rf"(?<![^\W_]){re.escape(word)}{more}(?![^\W_])"
                text = re.sub(whole, name, text, flags=re.IGNORECASE)
        return text


def _shortened(path: str) -> str:
    if _SYSTEM.match(path):
        return path
    name = path.rstrip("/").rpartition("/")[2]
    return f"PATH/{name}" if re.fullmatch(r"[\w+-]+\.\w{1,4}", name) else "PATH"


def of_this_machine(work: Path, checkout: Path) -> Privacy:
    """Return the privacy of this user on this machine; `work` is the run's own folder."""
    folders: dict[str, str] = {}
    pythons = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)]
    named = [(work, "WORK"), (checkout, "CHECKOUT"), *((path, "PYTHON") for path in pythons)]
    for path, name in [*named, *((Path(home), "~") for home in _homes())]:
        for spelling in (str(path), os.path.realpath(path)):
            if not _SYSTEM.match(spelling) and spelling not in ("/", "/usr"):
                folders.setdefault(spelling, name)
    return Privacy(folders, _words(_users()), _words(_hosts()))


def _homes() -> Iterator[str]:
    if home := os.environ.get("HOME"):
        yield home
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(os.getuid()).pw_dir


def _users() -> Iterator[str]:
    """Yield names of the user: of the account, of the person, and of the home folder."""
    for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
        yield os.environ.get(name, "")
    with contextlib.suppress(KeyError):
        account = pwd.getpwuid(os.getuid())
        person = account.pw_gecos.partition(",")[0]
        yield from (account.pw_name, person, *person.split())
    yield from (Path(home).name for home in _homes())


def _hosts() -> Iterator[str]:
    for name in (platform.node(), os.environ.get("HOSTNAME", ""), os.environ.get("HOST", "")):
        yield from (name, name.partition(".")[0])
    with contextlib.suppress(OSError, UnicodeDecodeError):
        yield Path("/etc/hostname").read_text().strip()


def _words(names: Iterable[str]) -> set[str]:
    """Return names that a text can be searched for; one letter would be found everywhere."""
    return {name for name in names if len(name) > 1 and name != "localhost"}

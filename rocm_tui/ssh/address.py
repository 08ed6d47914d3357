"""`ssh://[user@]host[:port][/path][?name=value&...]`: another host, and what is meant there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain

SCHEME = "ssh://"

_FORM = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}|\[[0-9A-Fa-f:.]{2,45}(?:%[\w.-]{1,20})?\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
"""Neither begins with `-`: ssh would take it for an option."""


class BadAddress(UsageError):
    """Not the address of a host; one line says what one looks like."""


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is a name that ssh knows, of its config too. `path` is the far side's, empty: its
    default; one that begins with `~/` is below the home there. `options` stood behind the `?`."""

    host: str
    user: str = ""
    port: int | None = None
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The host as it was written: `ssh://user@host:port`."""
        return f"{SCHEME}{self.login}{'' if self.port is None else f':{self.port}'}"

    @property
    def login(self) -> str:
        """`user@host`, as a person types it behind `ssh`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" if self.user else host

    @property
    def command(self) -> str:
        """What rocm-tui is called there."""
        return self.options.get("command") or "rocm-tui"


def is_far(text: str) -> bool:
    """Whether a source or an address is of another host."""
    return text.startswith(SCHEME)


def host_of(source: str) -> str:
    """`host` or `host:port` of the far source `ssh://user@host:port/path`; empty of another."""
    if not is_far(source):
        return ""
    return source.removeprefix(SCHEME).partition("/")[0].rpartition("@")[2]


def address_of(text: str, known: frozenset[str] = frozenset(("command",))) -> Address:
    """Raises BadAddress, also for an option that is not `known`."""
    from urllib.parse import parse_qsl, unquote  # whoever asks `is_far` alone needs none of it

    rest, _, asked = text.removeprefix(SCHEME).partition("?")
    place, slash, path = rest.partition("/")
    form = _FORM.fullmatch(place)
    port = int(form["port"]) if form and form["port"] else None
    if not is_far(text) or form is None or not (port is None or 0 < port < 65536):
        raise BadAddress(f"{plain(text)!r} is no ssh://[user@]host[:port][/path]")
    path = unquote(slash + path)
    if "\0" in path or "\n" in path:
        raise BadAddress(f"{plain(text)!r}: no path has such a character")
    options = dict(parse_qsl(asked, keep_blank_values=True))
    for name in options.keys() - known:
        names = ", ".join(sorted(known))
        raise BadAddress(f"{plain(text)!r}: {plain(name)!r} is not among its options: {names}")
    home = path.removeprefix("/") if path.startswith("/~") else path
    return Address(form["host"].strip("[]"), form["user"] or "", port, home.rstrip("/"), options)

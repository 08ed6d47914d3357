"""Decide from its headers alone, before anything is done, whether a request is answered.

Three secrets, each of 256 bits: the token in the URL that was printed gives the page; the page sets
a cookie, which gives the files that the page loads; and it holds a ticket, which, with the cookie,
gives the screen. A browser sends a cookie to all ports of a host, so the cookie alone opens no
screen. The names of the server are known, so that a name that another site made point here (DNS
rebinding) is refused; and a page of another origin, be it another port of the same host, gets
nothing at all.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Thing = Literal["page", "file", "screen"]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Guard:
    """Decide which requests the server answers.

    `names` are the hosts that a request may name, at any port, since there may be a tunnel between.
    With `addresses` any IP address is accepted too: another site cannot make it its own.
    """

    names: frozenset[str] = LOOPBACK
    addresses: bool = False
    token: str = field(default_factory=_secret)
    cookie: str = field(default_factory=_secret)
    ticket: str = field(default_factory=_secret)

    def refusal(
        self, thing: Thing, method: str, headers: Mapping[str, str], shown: Mapping[str, str]
    ) -> str | None:
        """Return why a request is refused, or None. `shown` are the secrets that it contains.
        `headers` must find its names in any case."""
        host = headers.get("Host", "")
        if not self._is_ours(host):
            return "this server has another name"
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return "a page of another site asks"
        if thing == "screen" and origin is None:
            return "a screen is for the page of this server"
        if thing != "page" and headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return "a page of another site asks"
        if method not in ("GET", "HEAD"):
            return "there is nothing to write to"
        needed = {"page": ("token",), "file": ("cookie",), "screen": ("cookie", "ticket")}[thing]
        if not all(self._is_right(name, shown.get(name, "")) for name in needed):
            return "open the whole URL that `rocm-tui serve` printed"
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        return name != "" and (name in self.names or (self.addresses and _is_address(name)))

    def _is_right(self, name: str, value: str) -> bool:
        """Compare in constant time. A value may contain half a character."""
        given = value.encode(errors="surrogatepass")
        return secrets.compare_digest(given, getattr(self, name).encode())


_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*))(?::[0-9]{1,5})?")


def _name(host: str) -> str:
    """Return the host of a Host header, without its port; empty if it is not a host."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens there."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)

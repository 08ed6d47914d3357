"""Who may have what of `serve`, decided from headers alone."""

from __future__ import annotations

import pytest

from rocm_tui.tui.browser.guard import LOOPBACK, Guard, is_loopback

GUARD = Guard(token="t" * 43, cookie="c" * 43, ticket="k" * 43)
SHOWN = {"token": GUARD.token, "cookie": GUARD.cookie, "ticket": GUARD.ticket}
HOST = {"Host": "127.0.0.1:7681"}
OURS = HOST | {"Origin": "http://127.0.0.1:7681"}


def test_each_secret_opens_its_own_thing() -> None:
    assert GUARD.refusal("page", "GET", HOST, {"token": GUARD.token}) is None
    assert GUARD.refusal("file", "GET", HOST, {"cookie": GUARD.cookie}) is None
    both = {"cookie": GUARD.cookie, "ticket": GUARD.ticket}
    assert GUARD.refusal("screen", "GET", OURS, both) is None


@pytest.mark.parametrize("wrong", ["", "t" * 42, "T" * 43, "c" * 43, "é"])
def test_another_token_opens_nothing(wrong: str) -> None:
    assert GUARD.refusal("page", "GET", HOST, {"token": wrong, "cookie": GUARD.cookie})


def test_a_cookie_alone_opens_no_page_and_no_screen() -> None:
    """A browser sends it to every port of the host, so another server there may know it."""
    shown = {"cookie": GUARD.cookie}
    assert GUARD.refusal("page", "GET", HOST, shown) and GUARD.refusal("screen", "GET", OURS, shown)


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:9000", "http://localhost:7681", "https://127.0.0.1:7681",
        "http://evil.example", "null", "http://127.0.0.1:7681.evil.example", "",
    ],
)  # fmt: skip
def test_another_origin_gets_nothing(origin: str) -> None:
    for thing in ("page", "file", "screen"):
        assert GUARD.refusal(thing, "GET", HOST | {"Origin": origin}, SHOWN)


def test_a_screen_needs_an_origin_as_browsers_send_it() -> None:
    assert GUARD.refusal("screen", "GET", HOST, SHOWN)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:7681", "", "127.0.0.1.nip.io:7681", "[::1].evil.com",
        "[::1]evil.com:80", "[::1", "[[::1]]", "localhost:evil.com", "localhost:",
        "evil.com:80:localhost", "localhost:7681:80", "x@localhost",
    ],
)  # fmt: skip
def test_another_name_of_this_machine_is_refused(host: str) -> None:
    """A site can let its own name point to 127.0.0.1, and is then of the same origin."""
    assert GUARD.refusal("page", "GET", {"Host": host}, SHOWN)


@pytest.mark.parametrize("host", ["localhost:9000", "[::1]:7681", "127.0.0.1", "LOCALHOST:1"])
def test_a_tunnel_may_have_another_port(host: str) -> None:
    assert GUARD.refusal("page", "GET", {"Host": host}, SHOWN) is None


def test_addresses_are_names_only_where_the_network_is_allowed() -> None:
    asked = {"Host": "10.1.2.3:7681"}
    assert GUARD.refusal("page", "GET", asked, SHOWN)
    opened = Guard(LOOPBACK, addresses=True, token=GUARD.token)
    assert opened.refusal("page", "GET", asked, SHOWN) is None
    assert opened.refusal("page", "GET", {"Host": "evil.example"}, SHOWN)


def test_files_are_for_our_page_and_there_is_nothing_to_write() -> None:
    assert GUARD.refusal("file", "GET", HOST | {"Sec-Fetch-Site": "same-site"}, SHOWN)
    assert GUARD.refusal("file", "GET", HOST | {"Sec-Fetch-Site": "same-origin"}, SHOWN) is None
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert GUARD.refusal("page", method, OURS, SHOWN)


def test_secrets_are_long_and_new_each_time() -> None:
    guards = [Guard() for _ in range(8)]
    secrets = {value for g in guards for value in (g.token, g.cookie, g.ticket)}
    assert len(secrets) == 24 and all(len(value) >= 43 for value in secrets)  # 256 bits


def test_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "box", "localhost.evil")))

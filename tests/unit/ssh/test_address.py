"""Addresses of other hosts, and the command line of ssh."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from rocm_tui.errors import UsageError
from rocm_tui.ssh.address import Address, BadAddress, address_of, host_of
from rocm_tui.ssh.command import far_line, ssh_line, typed


def test_all_parts_of_an_address() -> None:
    address = address_of("ssh://me@gpu-1.lab:2222/data/a%20b?command=/opt/v/bin/rocm-tui")
    assert address == Address(
        "gpu-1.lab", "me", 2222, "/data/a b", {"command": "/opt/v/bin/rocm-tui"}
    )
    assert address.place == "ssh://me@gpu-1.lab:2222"
    assert address_of("ssh://box") == Address("box") == address_of("ssh://box/")
    assert address_of("ssh://box/~/cache").path == "~/cache"
    assert address_of("ssh://[fe80::1]:22/x").host == "fe80::1"
    assert host_of("ssh://me@box:22/cache/f") == "box:22"
    assert host_of("/cache/f") == ""


@pytest.mark.parametrize(
    "text",
    [
        "ssh://",
        "ssh://-oProxyCommand=touch%20x/p",
        "ssh://-lroot@box/p",
        "ssh://me@-box/p",
        "ssh://box name/p",
        "ssh://box:0/p",
        "ssh://box:99999/p",
        "ssh://$(id)/p",
        "ssh://box/p%0aq",
        "ssh://box/p?port=1",
        "ssh://b\x1b[2Jox/p",
        "sftp://box/p",
    ],
)
def test_no_address(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        address_of(text)
    assert str(caught.value).isprintable()


def test_the_far_shell_reads_the_words_that_were_meant(tmp_path: Path) -> None:
    """And runs nothing that stands in a path."""
    words = ["tail", "--", f"{tmp_path}/a b'; touch {tmp_path}/ran; $(touch {tmp_path}/ran) `x` \\"]
    line = far_line("printf '%s\\n'", words)
    for shell in ("sh", "bash"):
        done = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == words
    assert not (tmp_path / "ran").exists()
    assert far_line("~/v/bin/rocm-tui", ["ls", "~/c d"]) == "~/v/bin/rocm-tui ls ~/'c d'"


def test_the_host_stands_behind_the_end_of_the_options() -> None:
    line = ssh_line(address_of("ssh://me@box:22/p"), ["tail"], {})
    assert line[0] == "ssh"
    assert line[-3:] == ["--", "box", "rocm-tui tail"]
    assert {"BatchMode=yes", "-T"} < set(line)
    assert line[line.index("-l") + 1] == "me"
    other = ssh_line(address_of("ssh://box"), ["tail"], {"ROCM_TUI_SSH": "ssh -F 'a b'"})
    assert other[:3] == ["ssh", "-F", "a b"]
    for bad in ("ssh '", " "):
        with pytest.raises(UsageError):
            ssh_line(address_of("ssh://box"), [], {"ROCM_TUI_SSH": bad})


def test_a_command_to_be_typed() -> None:
    text = typed(address_of("ssh://me@box:22/p"), ["pin", "abc", "a b"])
    assert shlex.split(text) == ["ssh", "-p", "22", "me@box", "rocm-tui pin abc 'a b'"]

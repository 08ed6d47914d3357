"""Sources on another host, through a real ssh to a server of our own."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from itertools import islice, repeat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from backend.wire.codec import WireError
from rocm_tui.ingest.far import link as far_link
from rocm_tui.ingest.far import source as far_source
from rocm_tui.ingest.far.wire import line_of, placed, told_in
from rocm_tui.ingest.far.words import away_text
from rocm_tui.ingest.follow.reading import read_sources
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import LinkSeen, Record, Seen, Unread
from rocm_tui.render.detail import selection_text
from rocm_tui.render.sessions import state_text
from rocm_tui.session.model import Model, Row
from rocm_tui.ssh.child import pauses
from tests.support.places import CORPUS
from tests.support.ssh_lab import Server, far_processes, needs_sshd, script, serving, wait_for

LOG = """AUTOTUNE mm({0}x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.float32, torch.float32
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0% \nSingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""  # noqa: E501


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("far") / "ssh") as running:
        yield running


@pytest.fixture
def logs(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROCM_TUI_SSH", server.env)
    monkeypatch.setattr(far_source, "pauses", lambda: repeat(0.2))
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text(LOG.format(32))
    return folder


class Screen:
    """A watcher, and the model that it fills."""

    def __init__(self, *paths: str) -> None:
        self.model = Model()
        self._lock = threading.Lock()
        self.links: list[LinkSeen] = []
        self.least, self.went = 0, False
        self.watcher = Watcher(paths, self._sink)

    def __enter__(self) -> Screen:
        self.watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.watcher.stop()
        assert not self.went, "a row went"

    def _sink(self, records: list[Record]) -> None:
        with self._lock:
            self.model.apply(records)
            for record in records:
                if isinstance(record, LinkSeen) and record.state not in self.states[-1:]:
                    self.links.append(record)
            if "following" in self.states:
                self.least = max(self.least, len(self.model.rows()))
                self.went |= len(self.model.rows()) < self.least

    @property
    def states(self) -> list[str]:
        """One after another; some last for a moment."""
        return [link.state for link in self.links]

    def lost(self) -> LinkSeen:
        """Wait until it is, for the first time."""
        wait_for(lambda: "lost" in self.states)
        return self.links[self.states.index("lost")]

    def sizes(self) -> list[int]:
        with self._lock:
            return sorted(row.tuning.shapes[0][0] for row in self.model.rows())

    def has(self, *sizes: int) -> None:
        wait_for(lambda: self.sizes() == sorted(sizes))

    @property
    def link(self) -> LinkSeen:
        (link,) = self.model.links.values()
        return link


def append(folder: Path, size: int) -> None:
    with (folder / "a.log").open("a") as stream:
        stream.write(LOG.format(size))


# What goes over the wire.


@pytest.mark.skipif(not CORPUS.exists(), reason="no corpus here")
def test_everything_that_is_read_is_told_again() -> None:
    records = read_sources([str(path) for path in sorted(CORPUS.iterdir())])
    assert len(records) > 50
    for record in records:
        again = told_in(line_of(record).rstrip(b"\n"))
        assert again == record
        if isinstance(record, Seen) and isinstance(again, Seen):
            assert again.tuning.choices == record.tuning.choices
            offered = [choice.offered for choice in record.tuning.choices]
            assert [choice.offered for choice in again.tuning.choices] == offered


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"\x80\x04\x95",
        b'{"is":"tuning"}',
        b'{"is":["tuning"]}',
        b'{"is":"link","source":"/x","state":"following","when":0}',
        b'{"is":"tuning","uid":"/a#1","op":"mm","choices":[["x"]]}',
        b'{"is":"tuning","uid":"/a#1","op":"mm","state":"\\u001b[2J"}',
        b'{"is":"hello","version":1}',
    ],
)
def test_what_is_no_line(line: bytes) -> None:
    with pytest.raises(WireError):
        told_in(line)


def test_no_name_of_the_far_side_is_one_of_ours() -> None:
    lines = (
        b'{"is":"gone","source":"/etc/passwd"}',
        b'{"is":"fault","source":"","what":"x"}',
        b'{"is":"dropped","uid":"/a#1"}',
        b'{"is":"tuning","uid":"/a#1","op":"mm","code":"/etc/passwd"}',
        b'{"is":"session","session":{"id":"s","cache_dir":"/root"}}',
    )
    for line in lines:
        record = told_in(line)
        text = str(placed(record, lambda name: f"ssh://h{name}"))  # type: ignore[arg-type]
        assert "ssh://h" in text
        assert "'/" not in text


def test_states_in_words() -> None:
    link = LinkSeen("ssh://h/p", "lost", 100.0, 116.0, "", reached=True)
    assert away_text(link, 112.0) == "lost 12 s ago, retrying in 4 s"
    assert away_text(LinkSeen("ssh://h/p", "connecting", 100.0), 112.0) == "connecting"
    assert away_text(LinkSeen("ssh://h/p", "following", 100.0), 112.0) == ""
    assert list(islice(pauses(), 7)) == [1, 2, 4, 8, 16, 30, 30]


# A real ssh.


@needs_sshd
def test_read_once(logs: Path, server: Server) -> None:
    (seen,) = read_sources([server.address(logs)])
    assert isinstance(seen, Seen)
    assert seen.uid == f"ssh://loop{logs}/a.log#1"
    assert seen.tuning.sources == (f"ssh://loop{logs}/a.log",)


@needs_sshd
def test_followed_lost_and_back(logs: Path, server: Server) -> None:
    """The server's session is killed; meanwhile lines came."""
    local = logs.parent / "here.log"
    local.write_text(LOG.format(7))
    with Screen(server.address(logs), str(local)) as screen:
        screen.has(7, 32)
        append(logs, 48)
        screen.has(7, 32, 48)
        for session in server.sessions():  # that of the test before may still be ending
            session.kill()
        assert "closed by remote host" in screen.lost().why
        append(logs, 80)
        screen.has(7, 32, 48, 80)
        assert screen.states == ["connecting", "following", "lost", "connecting", "following"]
        own = screen.watcher.sources()[1]
        assert (own.path, own.state, own.words) == (f"ssh://loop{logs}", "following", "")
    wait_for(lambda: not far_processes(logs))


@needs_sshd
def test_what_went_while_it_was_away_is_taken_back(logs: Path, server: Server) -> None:
    (logs / "b.log").write_text(LOG.format(48))
    states: list[Record] = []
    watcher = Watcher([server.address(logs)], states.extend)
    model = Model()
    watcher.start()
    try:
        wait_for(lambda: sum(isinstance(record, Seen) for record in states) == 2)
        (logs / "b.log").unlink()
        (link,) = (p for p in far_processes(logs) if p.name() == "ssh")
        link.kill()
        wait_for(
            lambda: (
                [r.state for r in states if isinstance(r, LinkSeen)][-2:]
                == ["connecting", "following"]
            )
        )
        wait_for(lambda: len(_rows(model, states)) == 1)
    finally:
        watcher.stop()


def _rows(model: Model, records: list[Record]) -> list[Row]:
    model.apply(records)
    return model.rows()


@needs_sshd
def test_a_link_that_stands_still_and_goes_on(logs: Path, server: Server) -> None:
    """As a slow one does: late, and nothing else."""
    with Screen(server.address(logs)) as screen:
        screen.has(32)
        (link,) = (p for p in far_processes(logs) if p.name() == "ssh")
        link.suspend()
        append(logs, 48)
        time.sleep(1)
        assert screen.sizes() == [32]
        link.resume()
        screen.has(32, 48)
        assert screen.states == ["connecting", "following"]


@needs_sshd
def test_a_stopped_far_side_is_lost_and_followed_again(
    logs: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Screen(server.address(logs)) as screen:
        screen.has(32)
        (far,) = (p for p in far_processes(logs) if "tail" in p.cmdline() and p.name() != "ssh")
        far.suspend()
        monkeypatch.setattr(far_link, "SILENCE", 0.6)
        assert screen.lost().why == "silent for 1 s"
        monkeypatch.setattr(far_link, "SILENCE", 20.0)
        far.resume()
        append(logs, 48)
        screen.has(32, 48)
    wait_for(lambda: not far_processes(logs))


HELLO = """echo '{{"is":"hello","version":"{}","protocol":{}}}'; """
ROGUES = {
    "garbage": ("head -c 300000 /dev/urandom", "not rocm-tui"),
    "escapes": (r"printf '\033]0;owned\007\033[2Jhi\n'; sleep 0.1; exit 3", "not rocm-tui: 'hi'"),
    "endless": ("cat /dev/zero", "a line of more than 8 MiB"),
    "version": (
        HELLO.format(r"9\u001b[2J", 7) + "sleep 600",
        "upgrade",
    ),
    "nonsense": (
        HELLO.format(1, 1) + """echo '{"evil":1}'""",
        "is no line",
    ),
    "old": ("""echo "rocm-tui: invalid choice: 'tail'" >&2; exit 2""", "too old"),
    "absent": ("exit 127", "no "),
}


@needs_sshd
@pytest.mark.parametrize("name", ROGUES)
def test_rogue_hosts(name: str, logs: Path, server: Server) -> None:
    """Each is one harmless line, at once, and leaves nothing behind."""
    body, says = ROGUES[name]
    rogue = script(logs.parent / "rogue", body)
    (problem,) = read_sources([server.address(logs, rogue)])
    assert isinstance(problem, Unread)
    assert says in problem.what
    assert problem.what.isprintable()


LATER = (
    '{"is":"session","session":{"id":"s1","pid":7}}',
    '{"is":"activity","source":"/a","session":"s1","activity":'
    '{"state":"offloading","told":"offloading","mood":"good"}}',
    '{"is":"tuning","uid":"/a#1","op":"mm","state":"pondering"}',
    '{"is":"tuning","uid":"/a#2","op":"mm","state":"pondering"}',
    '{"is":"prophecy","source":"/a"}',
    '{"is":"tuning","uid":"/a#3","op":"mm","selected_by":"lottery"}',
    '{"is":"beat","sources":[{"path":"/a","format":"log","size":1,"read":1,"problems":0,'
    '"watched_by":"fanotify","state":"thawing"}]}',
    '{"is":"settled"}',
)


@needs_sshd
def test_a_later_version_there_is_read_as_far_as_it_is_known(logs: Path, server: Server) -> None:
    """States that nobody has thought of yet are shown as they are written."""
    said = HELLO.format("99.0", 1) + f"printf '%s\\n' {' '.join(map(shlex.quote, LATER))}"
    model = Model()
    model.apply(read_sources([server.address(logs, script(logs.parent / "later", said))]))
    (process,) = model.processes.live
    assert state_text(process.activity) == "offloading" and process.activity.lives
    (row,) = model.rows()
    assert selection_text(row.tuning) == "selected by lottery"
    told = [problem.what for problem in model.problems]
    assert len(told) == 2 and "rocm-tui 99.0 there" in told[0] and "'pondering'" in told[0]


@needs_sshd
def test_a_far_side_that_tells_without_a_pause_hears_that_we_listen(
    logs: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would end in the middle of what it has to tell. A word or two it gets while the
    connection is made."""
    monkeypatch.setattr(far_link, "BEAT", 0.2)
    heard = logs.parent / "heard"
    talks = """exec 3<&0; cat <&3 > %s & echo '{"is": "hello", "version": "1"}'
while echo '{"is": "beat"}'; do :; done"""
    with Screen(server.address(logs, script(logs.parent / "talks", talks % heard))):
        wait_for(lambda: heard.exists() and heard.stat().st_size > 5)


@needs_sshd
def test_chatter_of_a_login_is_passed_over(logs: Path, server: Server) -> None:
    chatter = f'echo Welcome; echo; exec {server.folder}/rocm-tui "$@"'
    chatty = script(logs.parent / "chatty", chatter)
    assert [type(record) for record in read_sources([server.address(logs, chatty)])] == [Seen]


@needs_sshd
def test_a_host_that_is_not_there_is_tried_again(
    logs: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    try:
        with Screen(server.address(logs)) as screen:
            wait_for(lambda: "lost" in screen.states)
            (problem,) = screen.model.problems
            assert "refused" in problem.what
            assert away_text(screen.link, time.time()).startswith("not reached, retrying in ")
            server.start()
            screen.has(32)
            assert not screen.model.problems
    finally:
        if server._poll() is not None:
            server.start()


@needs_sshd
def test_a_clock_that_is_set_back_delays_no_try(
    logs: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    try:
        with Screen(server.address(logs)) as screen:
            wait_for(lambda: "lost" in screen.states)
            back = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() - 3600)
            monkeypatch.setattr(far_source, "time", back)
            wait_for(lambda: screen.link.when < time.time() - 3000)
            server.start()
            screen.has(32)
    finally:
        if server._poll() is not None:
            server.start()


@needs_sshd
def test_the_far_side_ends_with_the_near_one(logs: Path, server: Server) -> None:
    """However that ends: here ssh is killed with no word."""
    with Screen(server.address(logs)) as screen:
        screen.has(32)
        near = [p for p in far_processes(logs) if p.name() == "ssh"]
        far = [p for p in far_processes(logs) if p.name() != "ssh"]
        os.kill(near[0].pid, signal.SIGKILL)
        psutil.wait_procs(far, 60)
        assert not any(process.is_running() for process in far)

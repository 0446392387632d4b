"""A child is started, watched, signalled and cleared away, and its end is noticed without reaping it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import textwrap
import time

import psutil
import pytest

from stallguard.errors import StallguardError
from stallguard.host.process_end import members, signal_group, sweep
from stallguard.storage.run_files import identity
from stallguard.supervisor.child import Child, from_kevent
from tests.host.children import is_alive

LONG = 20.0  # seconds; only a broken test waits that long


class Ends:
    """Starts children and collects their ends."""

    def __init__(self):
        self.posted = queue.SimpleQueue()
        self.children = []

    def start(self, argv, **more):
        post = more.pop("post", lambda *end: self.posted.put(end))
        child = Child.start(argv, env=more.pop("env", dict(os.environ)), post=post, **more)
        self.children.append(child)
        return child

    def python(self, code, **more):
        return self.start([sys.executable, "-c", textwrap.dedent(code)], **more)

    def end(self):
        return self.posted.get(timeout=LONG)


@pytest.fixture
def ends():
    ends = Ends()
    yield ends
    for child in ends.children:
        signal_group(child.pid, signal.SIGKILL)
        child._thread.join(LONG)
        child.reap()


def eventually(fact):
    until = time.monotonic() + LONG
    while not fact() and time.monotonic() < until:
        time.sleep(0.01)
    assert fact()


def hears(child, path):
    """Wait until the child has written its line to `path`."""
    eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text().split()


@pytest.mark.parametrize(("code", "seen"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_the_end_is_reported_once_with_its_code(ends, code, seen):
    ends.python(code)
    assert ends.end()[0] == seen
    assert ends.posted.empty()


def test_the_child_stays_a_zombie_until_it_is_reaped(ends):
    child = ends.python("pass")
    ends.end()
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    # The number is still the child's: a signal cannot reach another process.
    assert identity(child.pid) == child.identity
    child.reap()
    assert not psutil.pid_exists(child.pid)
    assert child.signal("TERM") is False


def test_once_reaped_its_number_may_be_anothers_and_is_not_signalled(ends):
    child, other = ends.python("pass"), ends.start(["sleep", "60"])
    ends.end()
    child.reap()
    child.pid = other.pid  # as if the system had given the number away
    assert child.signal("KILL") is False
    assert psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE


def test_the_child_leads_a_session_of_its_own(ends, tmp_path):
    said = tmp_path / "said"
    child = ends.python(f"import os; print(os.getsid(0), os.getpgrp(), file=open({str(said)!r}, 'w'))")
    ends.end()
    assert said.read_text().split() == [str(child.pid)] * 2
    assert os.getsid(0) != child.pid


def test_the_child_has_the_environment_directory_and_plain_signals_of_the_user(ends, tmp_path):
    ends.start(
        ["/bin/sh", "-c", 'test "$ONLY" = this && test "$(pwd -P)" = "$PLACE" && kill -PIPE $$'],
        env={"ONLY": "this", "PLACE": str(tmp_path.resolve()), "PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
    )
    assert ends.end()[0] == -signal.SIGPIPE  # Python ignores SIGPIPE; the child must not inherit that


def test_a_signal_reaches_the_whole_group(ends, tmp_path):
    said = tmp_path / "said"
    child = ends.start(["/bin/sh", "-c", f"sleep 60 & echo $! > {said}; wait"])
    worker = int(hears(child, said)[0])
    assert child.signal("KILL")
    assert ends.end()[0] == -9
    eventually(lambda: not is_alive(worker))


@pytest.mark.waits
def test_orphans_of_a_crash_are_gone_before_its_end_is_reported(ends, tmp_path):
    said = tmp_path / "said"
    worker = f"trap '' TERM; echo x > {said}; while :; do sleep 1; done"
    child = ends.start(["/bin/sh", "-c", f"({worker}) & sleep 0.3; exit 3"])
    hears(child, said)
    assert ends.end()[0] == 3
    assert members(child.pid) == []


def test_what_a_finished_program_leaves_running_on_purpose_is_left(ends):
    child = ends.start(["/bin/sh", "-c", "sleep 60 & exit 0"])
    assert ends.end()[0] == 0
    assert len(members(child.pid)) == 1


def test_a_stopped_group_is_ended_without_waiting_for_the_grace(ends):
    child = ends.start(["/bin/sh", "-c", "sleep 60"])
    child.signal("STOP")
    began = time.monotonic()
    assert sweep(child.pid, grace=LONG) == []
    assert time.monotonic() - began < LONG / 2


def test_nothing_waits_for_a_child_that_ignores_everything_it_can(ends, tmp_path):
    said = tmp_path / "said"
    child = ends.python(f"""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print('x', file=open({str(said)!r}, 'w'), flush=True)
        time.sleep(60)
    """)
    hears(child, said)
    began = time.monotonic()
    child.signal("TERM")
    assert time.monotonic() - began < LONG / 2
    assert ends.posted.empty()
    child.signal("KILL")
    assert ends.end()[0] == -9


def test_the_last_output_may_be_waited_for_before_the_end_is_reported(ends):
    order = []
    child = ends.python("pass", before_post=lambda: order.append("output"), post=lambda *_: order.append("end"))
    child._thread.join(LONG)
    assert order == ["output", "end"]


def test_a_script_without_interpreter_line_runs_as_in_a_shell(ends, tmp_path):
    script = tmp_path / "job"
    script.write_text('test "$1" = a && exit 5\n')
    script.chmod(0o755)
    ends.start([str(script), "a"])
    assert ends.end()[0] == 5


@pytest.mark.parametrize(
    ("make", "code"),
    [(lambda path: None, 127), (lambda path: path.write_text("x"), 126), (lambda path: path.mkdir(), 126)],
    ids=["absent", "not executable", "directory"],
)
def test_what_cannot_be_started_is_126_or_127(ends, tmp_path, make, code):
    make(tmp_path / "program")
    with pytest.raises(StallguardError) as caught:
        ends.start([str(tmp_path / "program")])
    assert caught.value.code == code


def test_a_working_directory_that_is_gone_is_said(ends, tmp_path):
    with pytest.raises(StallguardError) as caught:
        ends.start(["/bin/sh", "-c", ":"], cwd=str(tmp_path / "gone"))
    assert "directory" in caught.value.why


@pytest.mark.parametrize(
    ("data", "code", "memory"), [(0, 0, False), (3 << 8, 3, False), (9 | 0x20000, -9, True), (15 | 0x10000, -15, False)]
)
def test_the_exit_note_of_macos_is_read(data, code, memory):
    assert from_kevent(data) == (code, memory, False)


def test_an_unknown_group_hears_nothing():
    with contextlib.suppress(ChildProcessError):
        assert signal_group(2**22 - 1, signal.SIGTERM) is False


@pytest.mark.waits
def test_a_group_is_known_although_psutil_cannot_list_processes(ends, monkeypatch):
    child = ends.start(["/bin/sh", "-c", "sleep 60"])

    def broken():
        raise RuntimeError("sysctl(KERN_PROC_ALL) failed")

    monkeypatch.setattr("psutil.pids", broken)
    assert members(child.pid) == [child.pid]
    sweep(child.pid, grace=0.1)
    assert ends.end()[0] < 0

"""The exit code of a detached training is known however it ends, also if stallguard was dead when it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from stallguard.errors import StallguardError
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor import waiter
from stallguard.supervisor.adopted import Adopted, awaited, exit_code, written

LONG = 60.0  # seconds; only a broken test waits that long
ROOT = Path(__file__).parent.parent.parent.parent
PYTHON = (sys.executable, "-u", "-c")
READ = "import os, signal, sys; sys.stdin.readline(); "  # goes on when the test says so
KILLED = "os.kill(os.getpid(), signal.SIG{})"
ENDINGS = {
    "sys.exit(0)": ((*PYTHON, READ + "sys.exit(0)"), 0),
    "sys.exit(3)": ((*PYTHON, READ + "sys.exit(3)"), 3),
    "exit 255": ((*PYTHON, READ + "sys.exit(255)"), 255),
    "raise": ((*PYTHON, READ + "raise ValueError"), 1),
    "os._exit(0)": ((*PYTHON, READ + "os._exit(0)"), 0),
    "SIGKILL": ((*PYTHON, READ + KILLED.format("KILL")), -9),
    "SIGTERM": ((*PYTHON, READ + KILLED.format("TERM")), -15),
    "a shell job": (("/bin/sh", "-c", "read line; sleep 0; exit 7"), 7),
}
FIRST = """
import os, sys, time
from pathlib import Path
from stallguard.supervisor.adopted import Adopted
file, argv = Path(sys.argv[1]), sys.argv[2:]
adopted = Adopted.start_below_waiter(argv, env=dict(os.environ), file=file, post=print, cwd=os.getcwd())
print(adopted.pid, flush=True)
time.sleep(600)
"""


class Scene:
    """A training that a stallguard started which was then killed."""

    def __init__(self, argv: tuple[str, ...], directory: Path) -> None:
        self.file = directory / "exit-1f.2"
        self.posted: list[tuple[int | None, bool | None]] = []
        self.there = threading.Event()
        first = subprocess.Popen(
            [sys.executable, "-c", FIRST, str(self.file), *argv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        assert first.stdout is not None
        assert first.stdin is not None
        self.stdin = first.stdin
        self.who = run_files.identity(int(first.stdout.readline()))
        self.waiter = psutil.Process(self.who.pid).parent()
        assert self.waiter is not None
        first.kill()
        first.wait()
        first.stdout.close()

    def end(self) -> None:
        """Let the training end."""
        self.stdin.write(b"go\n")
        self.stdin.close()

    def adopt(self, who: Identity | None = None) -> int | None:
        """Return the exit code that a later stallguard learns."""
        adopted = Adopted(who or self.who, self.file, self._post)
        assert self.there.wait(LONG)
        adopted._thread.join()
        [(code, _)] = self.posted
        return code

    def _post(self, code: int | None, memory_kill: bool | None) -> None:
        self.posted.append((code, memory_kill))
        self.there.set()

    def until_it_is_gone(self) -> None:
        until = time.monotonic() + LONG
        while run_files.lives(self.who):
            assert time.monotonic() < until
            time.sleep(0.01)

    def close(self) -> None:
        if run_files.lives(self.who):
            os.killpg(self.who.pid, signal.SIGKILL)
        if not self.stdin.closed:
            self.stdin.close()


@pytest.fixture
def scene(tmp_path):
    made = []

    def start(*argv, directory=tmp_path):
        made.append(Scene(argv, directory))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.costly
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_code_of_an_adopted_training_is_true(scene, ending):
    argv, code = ENDINGS[ending]
    training = scene(*argv)
    threading.Timer(0.1, training.end).start()
    assert training.adopt() == code


@pytest.mark.costly
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_code_is_read_afterwards_by_a_stallguard_that_was_dead_at_the_end(scene, ending):
    argv, code = ENDINGS[ending]
    training = scene(*argv)
    training.end()
    training.until_it_is_gone()
    assert training.adopt() == code


def test_without_the_waiter_the_code_is_not_guessed(scene):
    training = scene(*ENDINGS["sys.exit(0)"][0])
    training.waiter.kill()
    threading.Timer(0.1, training.end).start()
    assert training.adopt() == (0 if sys.platform == "darwin" else None)


def test_a_signal_to_the_waiter_reaches_the_training_and_its_code_is_written(scene):
    training = scene("/bin/sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.1; done")
    time.sleep(0.2)  # a shell without its trap yet is killed by the signal: the code says which it was
    training.waiter.terminate()
    assert training.adopt() in (9, -15)


@pytest.mark.parametrize("name", ["USR1", "ALRM", "XCPU"])
def test_a_waiter_outlives_a_signal_that_a_batch_system_sends_to_all(scene, name):
    handler = f"import signal; signal.signal(signal.SIG{name}, lambda *_: sys.exit(9)); "
    training = scene(sys.executable, "-u", "-c", READ.replace("sys; ", "sys; " + handler) + "signal.pause()")
    training.end()
    # An interpreter without its handler yet is killed by the signal: the code says which it was.
    time.sleep(0.2)
    training.waiter.send_signal(getattr(signal, f"SIG{name}"))
    assert training.adopt() in (9, -getattr(signal, f"SIG{name}"))


def test_the_waiter_is_small_and_no_member_of_the_group_that_is_ended(scene):
    training = scene("/bin/sh", "-c", "read line; exit 4")
    assert training.waiter.memory_info().rss <= 11 << 20
    assert os.getpgid(training.waiter.pid) != training.who.pid
    os.killpg(training.who.pid, signal.SIGKILL)
    assert training.adopt() == -9


def test_the_training_has_the_signals_and_descriptors_of_a_plain_child(tmp_path):
    code = """
import os, signal, sys
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "SIGTERM"
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "blocked"
assert os.getsid(0) == os.getpgrp() == os.getpid(), "session"
assert os.environ["ONLY"] == "th\\udcfcs" and os.getcwd() == sys.argv[1], "environment"
for descriptor in range(3, 64):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    sys.exit(f"descriptor {descriptor} is open")
os.kill(os.getpid(), signal.SIGPIPE)
"""
    ended = threading.Event()
    codes = []

    def post(code, _memory_kill):
        codes.append(code)
        ended.set()

    where = str(tmp_path.resolve())
    argv = [sys.executable, "-c", "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)" + code, where]
    adopted = Adopted.start_below_waiter(argv, env={"ONLY": "th\udcfcs"}, file=tmp_path / "exit", post=post, cwd=where)
    assert ended.wait(LONG)
    adopted._thread.join()
    assert codes == [-signal.SIGPIPE]


@pytest.mark.parametrize(
    ("make", "code"),
    [(lambda path: None, 127), (lambda path: path.write_text("x"), 126), (lambda path: path.mkdir(), 126)],
    ids=["absent", "not executable", "directory"],
)
def test_what_cannot_be_started_is_126_or_127(tmp_path, make, code):
    make(tmp_path / "program")
    with pytest.raises(StallguardError) as caught:
        Adopted.start_below_waiter([str(tmp_path / "program")], env={}, file=tmp_path / "exit", post=print, cwd="/")
    assert caught.value.code == code


def test_a_working_directory_that_is_gone_is_said(tmp_path):
    with pytest.raises(StallguardError) as caught:
        Adopted.start_below_waiter(["/bin/sh"], env={}, file=tmp_path / "exit", post=print, cwd=str(tmp_path / "gone"))
    assert "directory" in caught.value.why


def test_a_script_without_interpreter_line_runs_as_in_a_shell(tmp_path):
    script = tmp_path / "job"
    script.write_text('test "$1" = a && exit 5\n')
    script.chmod(0o755)
    adopted = Adopted.start_below_waiter(
        [str(script), "a"], env={}, file=tmp_path / "exit", post=lambda *_: None, cwd=str(tmp_path)
    )
    adopted._thread.join(LONG)
    assert exit_code(tmp_path / "exit") == 5


def test_a_waiter_that_cannot_be_started_is_an_error_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(waiter, "__file__", str(tmp_path / "gone.py"))
    with pytest.raises(OSError, match="before it started the training"):
        Adopted.start_below_waiter(["/bin/sh"], env={}, file=tmp_path / "exit", post=print, cwd="/")


class TestWithoutRoom:
    """The directory of the exit code cannot be written when the training begins, as on a full or read-only disk."""

    def test_a_stallguard_that_lives_learns_the_code_all_the_same(self, tmp_path):
        codes, ended = [], threading.Event()

        def post(code, _memory_kill):
            codes.append(code)
            ended.set()

        absent = tmp_path / "absent" / "exit-1f.2"
        adopted = Adopted.start_below_waiter(["/bin/sh", "-c", "exit 9"], env={}, file=absent, post=post, cwd="/")
        assert ended.wait(LONG)
        adopted._thread.join()
        assert codes == [9]
        assert not psutil.pid_exists(adopted._waited.process.pid), "the waiter has ended"

    def test_the_code_is_written_once_there_is_room_after_the_end(self, scene, tmp_path):
        one = scene(*ENDINGS["sys.exit(3)"][0], directory=tmp_path / "later")
        one.end()
        one.until_it_is_gone()
        assert awaited(tmp_path / "later", "exit-*.2") == one.file
        assert awaited(tmp_path / "later", "exit-*.1") is None
        threading.Timer(0.5, (tmp_path / "later").mkdir).start()
        assert one.adopt() == 3
        assert written(tmp_path / "later", "exit-*.2") == one.file

    def test_the_file_is_there_before_the_end_if_there_is_room_by_then(self, scene, tmp_path):
        one = scene(*ENDINGS["SIGKILL"][0], directory=tmp_path / "later")
        (tmp_path / "later").mkdir()
        until = time.monotonic() + LONG
        while not one.file.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert one.file.stat().st_mode & 0o777 == 0o600
        one.end()
        assert one.adopt() == -9

    @pytest.mark.waits
    def test_a_disk_that_takes_longer_than_the_time_between_two_attempts_is_awaited(self, tmp_path, monkeypatch):
        slow = tmp_path / "slow.py"
        # The waiter is a program of its own, and its timer the kernel's: only a disk that really takes long shows it.
        slow.write_text(
            "import os, runpy, time\nquick = os.fsync\n"
            f"def slowly(file):\n    time.sleep({2.5 * waiter.EVERY})\n    quick(file)\n"
            f"os.fsync = slowly\nrunpy.run_path({waiter.__file__!r}, run_name='__main__')\n"
        )
        monkeypatch.setattr(waiter, "__file__", str(slow))
        codes, ended, later = [], threading.Event(), tmp_path / "later"

        def post(code, _memory_kill):
            codes.append(code)
            ended.set()

        argv = ["/bin/sh", "-c", "until [ -s later/exit-1f.2 ]; do sleep 0.1; done; exit 9"]
        adopted = Adopted.start_below_waiter(
            argv, env=dict(os.environ), file=later / "exit-1f.2", post=post, cwd=str(tmp_path)
        )
        later.mkdir()
        assert ended.wait(LONG)
        adopted._thread.join()
        assert codes == [9]
        assert exit_code(later / "exit-1f.2") == 9

    def test_of_an_attempt_without_a_waiter_no_code_is_awaited(self, tmp_path):
        assert written(tmp_path, "exit-*.2") is None
        assert exit_code(tmp_path / "exit-1f.2") is None

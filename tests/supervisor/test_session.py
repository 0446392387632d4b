"""`stallguard run` without TensorFlow: nothing of the script's world changes, and every end has its code."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from tests.guarded.runs import AT_ONCE, RUN, SPOILED, guard, stallguard

ROOT = Path(__file__).parent.parent.parent
HERE = """
import os, sys
print(sys.argv, sys.path[0], os.getcwd(), sys.stdin.read())
print("to the other", file=sys.stderr)
sys.stdout.buffer.write(bytes(range(256)))
"""


def write(place: Path, text: str, name: str = "script.py") -> str:
    path = place / name
    path.write_text(text)
    return str(path)


def test_a_script_sees_and_says_the_same_as_without_us(tmp_path: Path) -> None:
    script = write(tmp_path, HERE)
    plain = subprocess.run(
        [sys.executable, script, "--epochs", "3", "-m"], capture_output=True, check=True, cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip

    run = guard(tmp_path / "home", "--quiet", script, "--epochs", "3", "-m", cwd=tmp_path)

    assert (run.code, run.out, run.err) == (0, plain.stdout, "to the other\n")
    assert run.run is not None
    assert sorted((run.run / "output.log").read_bytes()) == sorted(plain.stdout + plain.stderr)


ELSEWHERE = """
import os, subprocess, sys, stallguard
os.mkdir("work")
os.chdir("work")
for _ in range(40):
    stallguard.beat()
print(os.environ["STALLGUARD_HOME"])
sys.exit(subprocess.call([sys.argv[1], "-m", "stallguard", "run", "--quiet", sys.executable, "-c", "pass"]))
"""


def test_a_relative_home_is_one_place_wherever_the_script_goes(tmp_path: Path) -> None:
    relative = {
        "STALLGUARD_HOME": "rel/h",
        "TMPDIR": "rel",
        "XDG_CONFIG_HOME": "rel",
        "PYTHONPATH": os.environ.get("PYTHONPATH", "") or str(ROOT),
    }
    (tmp_path / "rel").mkdir()
    run = guard(tmp_path, write(tmp_path, ELSEWHERE), sys.executable, env=relative, cwd=tmp_path)

    home = tmp_path / "rel" / "h"
    assert (run.code, run.out.decode()) == (0, f"{home}\n"), run.err
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == []
    outer = next(path for path in (home / "runs").iterdir() if path.name.endswith("-script"))
    assert "40 batches" in run.err
    assert len([path for path in (home / "runs").iterdir() if not path.is_symlink()]) == 2
    assert (outer / "outcome.json").exists()


@pytest.mark.parametrize(
    ("end", "code"),
    [("raise SystemExit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137), ("1/0", 1)],
)
def test_the_exit_code_is_the_childs_own_or_128_and_the_signal(tmp_path: Path, end: str, code: int) -> None:
    run = guard(tmp_path, "--max-restarts", "0", write(tmp_path, end))

    assert run.code == code
    assert run.outcome()["exit_code"] == code


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run"], 2, "nothing to run"),
        (["run", "trian.py"], 127, "did you mean train.py?"),
        (["run", "./plain.txt"], 126, "is not executable"),
        (["run", "no-such-program"], 127, "no such program"),
        (["run", "--patiense", "2", "train.py"], 2, "--patience"),
        (["run", "--set", "detector.patiense=2", "train.py"], 2, "did you mean detector.patience?"),
        (["run", "--grace", "soon", "train.py"], 2, "expected a duration"),
        (["run", "--patience", "0", "train.py"], 2, "a number, 0.25 or more"),
        (["rnu", "train.py"], 2, "did you mean run?"),
        (["logs", "nothing-like-it"], 3, "no run"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    write(tmp_path, "", "train.py")
    write(tmp_path, "", "plain.txt")

    run = stallguard(tmp_path / "home", *words, cwd=tmp_path)

    assert run.code == code
    assert says in run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "home").exists()


def test_a_home_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    run = guard(tmp_path / "file", write(tmp_path, ""))

    assert run.code == 126
    assert "cannot make a run directory" in run.err
    assert "STALLGUARD_HOME" in run.err


def test_what_cannot_be_looked_into_is_said_in_one_line_and_still_guarded(tmp_path: Path) -> None:
    run = stallguard(tmp_path, "run", "--", "/bin/echo", "-n", "hello")

    assert (run.code, run.out) == (0, b"hello")
    assert "stallguard cannot look inside the training" in run.err


def test_by_hand_beats_and_phases_are_received(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import stallguard, time
        for _ in range(5):
            stallguard.beat()
        with stallguard.phase("export"):
            time.sleep(0.3)
        """.replace("\n        ", "\n"),
    )

    run = guard(tmp_path / "home", script)

    assert (run.code, run.outcome()["batches"]) == (0, 5)


def started(home: Path, script: str) -> subprocess.Popen[bytes]:
    """Start a guarded run and wait until the script said its first line."""
    child = subprocess.Popen(
        [*RUN, "--python", sys.executable, script],
        env={**os.environ, "STALLGUARD_HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline()
    return child


CATCHES = """
import time
try:
    print("ready", flush=True)
    while True:  # one long sleep can begin after the signal and before its handler
        time.sleep(0.01)
except KeyboardInterrupt:
    print("saved", flush=True)
    raise SystemExit(5)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(1)
print("ready", flush=True)
time.sleep(60)
"""


def test_ctrl_c_is_passed_on_once_and_waited_for(tmp_path: Path) -> None:
    with started(tmp_path / "home", write(tmp_path, CATCHES)) as child:
        child.send_signal(signal.SIGINT)

        assert child.wait(20) == 5
        assert child.stdout is not None
        assert child.stdout.read() == b"saved\n"


def test_ctrl_c_twice_ends_it(tmp_path: Path) -> None:
    with started(tmp_path / "home", write(tmp_path, STUBBORN)) as child:
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)

        assert child.wait(20) == 128 + signal.SIGKILL


def test_sigterm_ends_the_training_by_the_ladder(tmp_path: Path) -> None:
    with started(tmp_path / "home", write(tmp_path, CATCHES)) as child:
        child.send_signal(signal.SIGTERM)

        assert child.wait(20) == 128 + signal.SIGTERM


SIGNALLED = """
import os, signal
number = getattr(signal, sys.argv.pop(1))
calls = []
def signalled(*args, **named):
    calls.append(args)
    if len(calls) == 1:  # who asks twice does not want to wait
        os.kill(os.getpid(), number)
    return whole(*args, **named)
spoil(signalled)
"""


def signalled(home: Path, number: str, where: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run COMMAND; stallguard gets that signal at its call of the function at `where`."""
    return subprocess.run(
        [sys.executable, "-c", SPOILED + SIGNALLED, where, number, "run", "--no-probe", *words],
        env={**os.environ, "STALLGUARD_HOME": str(home)}, capture_output=True, check=False, timeout=30,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize(
    "where",
    [
        "storage.run_files/write",
        "supervisor.session/HeartbeatListener",
        "supervisor.loop/Loop",
        "supervisor.child/Child/start",
    ],
)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_while_the_training_is_being_started_ends_it(tmp_path: Path, name: str, where: str) -> None:
    done = signalled(tmp_path, name, f"stallguard.{where}", "sleep", "60")

    assert done.returncode == 128 + getattr(signal, name), done.stderr
    assert run_files.state(RunDir((tmp_path / "runs" / "latest").resolve())) in ("stopped", "interrupted")
    assert not list(Path(tempfile.gettempdir()).glob("stallguard-*"))


def test_a_signal_that_comes_when_all_is_over_changes_nothing(tmp_path: Path) -> None:
    done = signalled(tmp_path, "SIGTERM", "stallguard.supervisor.control/Control/close", "sh", "-c", "exit 7")

    assert done.returncode == 7, done.stderr
    assert not list(Path(tempfile.gettempdir()).glob("stallguard-*"))


def test_a_supervisor_that_is_killed_leaves_a_readable_journal_and_is_listed_as_lost(tmp_path: Path) -> None:
    with started(tmp_path / "home", write(tmp_path, STUBBORN)) as child:
        training = psutil.Process(child.pid).children()
        child.kill()
        child.wait(10)
    for process in training:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for place in Path(tempfile.gettempdir()).glob("stallguard-*"):
        shutil.rmtree(place)  # what it would have taken away itself
    latest = RunDir((tmp_path / "home" / "runs" / "latest").resolve())

    assert run_files.state(latest) == "lost"
    listed = stallguard(tmp_path / "home", "ls")
    assert b"lost" in listed.out
    announced = stallguard(tmp_path / "home", "logs")
    assert b"guarding" in announced.out


DEADLOCK = """
import threading, time, stallguard
first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
def take(one, other):
    with one:
        both.wait()
        with other:
            pass
end = time.monotonic() + 1.2
while time.monotonic() < end:  # steps that compute
    stallguard.beat()
    sum(range(100_000))
threading.Thread(target=take, args=(second, first), daemon=True).start()
take(first, second)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the wait sites of threads, which only Linux shows")
def test_a_deadlock_after_a_second_of_steps_is_named(tmp_path: Path) -> None:
    keys = (f"{row}.{prior}{kind}" for row in ("step", "unclassified") for prior in ("", "prior_")
            for kind in ("deadlock", "external"))  # fmt: skip
    quick = [word for key in keys for word in ("--set", f"detector.rows.{key}=4s")]
    run = guard(tmp_path / "home", *AT_ONCE, *quick, "--on-stall", "stop", write(tmp_path, DEADLOCK))

    assert run.code == 124, run.err
    assert run.announced("training.stalled")[0]["what"] == "its threads wait, and nothing in the process can wake them"
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"


def test_an_error_said_in_the_very_first_moment_is_read(tmp_path: Path) -> None:
    run = guard(tmp_path, "--max-restarts", "0", write(tmp_path, "raise MemoryError('at once')"))

    assert run.code == 1
    assert run.actions("incident.diagnosed")[-1]["findings"][0]["cause"] == "out-of-memory"


LOADED = """
import gc, sys
def look(event, words):
    if event == "subprocess.Popen" and words[1][0].endswith("true"):
        print([name for name in wanted if name in sys.modules], file=sys.stderr)
wanted = sys.argv.pop(1).split()
sys.addaudithook(look)
from stallguard.cli import main
try:
    main()
finally:
    print(gc.isenabled(), file=sys.stderr)
"""


def test_a_training_is_started_before_what_guards_it_is_loaded(tmp_path: Path) -> None:
    slow = (
        "stallguard.core.fold stallguard.collectors.evidence_bundle stallguard.sensors.sensor_registry "
        "psutil structlog rich click typing_extensions importlib.metadata hashlib"
    )
    done = subprocess.run(
        [sys.executable, "-c", LOADED, slow, "run", "--quiet", "true"], capture_output=True, check=True, text=True,
        env={**os.environ, "STALLGUARD_HOME": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    assert done.stderr == "[]\nTrue\n"  # garbage is collected again once the run has begun

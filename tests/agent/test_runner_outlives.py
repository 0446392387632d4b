"""A job as a service manager starts it: stallguard is killed, comes back, and guards the training that went on."""

from __future__ import annotations

import os
import plistlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from click.testing import CliRunner

import stallguard.cli.agent as verbs
from stallguard.agent import job_memory
from stallguard.agent.job import AgentJob
from stallguard.agent.launchd import render
from stallguard.core.events import Collected, Heartbeat
from stallguard.core.time_spent import total
from stallguard.errors import GAVE_UP
from stallguard.report import journal_record, narrative
from stallguard.storage import journal, run_files
from stallguard.storage.paths import RunDir, list_runs
from tests.agent.little_launchd import LittleLaunchd

ROOT = Path(__file__).parent.parent.parent
TRAIN = """
import os, sys, time
import stallguard
for number in range(int(sys.argv[1])):
    print("step", number, flush=True)
    stallguard.beat()
    time.sleep(0.1)
    if os.path.exists("enough"):
        break
{end}
"""
LONG = 10_000  # steps: until the test says that it is enough


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    return tmp_path


@pytest.fixture
def launchd(place):
    """A function that starts a job with a training of so many steps; all is ended afterwards."""
    started: list[LittleLaunchd] = []

    def start(steps: int, end: str = "", more: tuple[str, ...] = ()) -> LittleLaunchd:
        script = place / "train.py"
        script.write_text(TRAIN.format(end=end))
        env = {name: os.environ[name] for name in ("PATH", "TMPDIR", "STALLGUARD_TEST_SESSION")}
        env |= {"PYTHONPATH": str(ROOT), "STALLGUARD_HOME": str(place / "kept")}
        options = ("--python", sys.executable, "--grace", "2s", "--set", "notify.desktop=off")
        job = AgentJob(
            name="night",
            python=sys.executable,
            run=(*options, *more, "--", str(script), str(steps)),
            cwd=str(place),
            log=str(place / "night.log"),
            env=env,
        )
        job_memory.keep("night", job_memory.JobMemory(wanted=True))
        little = LittleLaunchd(render(job))
        started.append(little)
        little.start()
        return little

    yield start
    for little in started:
        little.close()
    for run in list_runs():
        attempt = run_files.recall_attempt(run)
        if attempt and run_files.lives(attempt.process):
            os.killpg(attempt.process.pid, signal.SIGKILL)


def until(what, seconds: float = 60.0):
    """Return the first true answer of `what`."""
    end = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return answer


def steps_of(run: RunDir) -> list[int]:
    text = run.output.read_text() if run.output.exists() else ""
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("step")]


def running_training(steps: int = 3) -> tuple[RunDir, run_files.AttemptRecord]:
    """Return the run and its attempt once some steps are done."""
    run = until(lambda: next(iter(list_runs()), None))
    until(
        lambda: (
            len(steps_of(run)) >= steps and any(isinstance(event, Heartbeat) for event in journal.events(run.journal))
        )
    )
    return run, until(lambda: run_files.recall_attempt(run))


def announced(run: RunDir) -> list[str]:
    """Return the names of the messages in the journal, in order."""
    events = (entry.line.event for entry in journal.read(run.journal))
    return [event for event in events if event in narrative.MESSAGES]


def test_a_training_goes_on_while_stallguard_is_dead_and_is_guarded_again(launchd, place):
    little = launchd(LONG)
    run, attempt = running_training()
    os.kill(little.process.pid, signal.SIGKILL)
    until(lambda: "run.taken_over" in announced(run))
    until(lambda: run_files.state(run) == "running")
    assert run_files.lives(attempt.process)
    done = len(steps_of(run))
    until(lambda: len(steps_of(run)) > done + 5)
    (place / "enough").touch()

    assert little.wait(60)
    end, steps = run_files.outcome(run), steps_of(run)
    assert (end.code, end.attempts, end.batches) == (0, 1, len(steps))
    assert steps == list(range(len(steps)))
    assert little.codes == [-signal.SIGKILL, 0]
    check_ledger(run, end)


LATE = 2.0  # seconds until a line is written, at most, on a busy machine


def check_ledger(run: RunDir, end: run_files.Outcome) -> None:
    """Check that stallguard's absence has its place, and that outcome and journal have the same seconds."""
    known = journal_record.read(run.journal)
    read = known.spent
    assert 0 < end.spent.supervisor_absent < end.seconds
    read, live = msgspec.structs.asdict(read), msgspec.structs.asdict(end.spent)
    # What an action ends, and the end of the run, is written a moment after it is decided; an event has its own time.
    late = dict.fromkeys(("script", "backoff", "restart", "ending"), LATE)
    for name, seconds in live.items():
        assert read[name] == pytest.approx(seconds, abs=late.get(name, 0.01)), name
    assert total(end.spent) == pytest.approx(known.clock_span[1] - known.clock_span[0], abs=LATE)


def test_a_death_before_anything_was_noted_starts_no_second_training(launchd, place):
    little = launchd(LONG)
    run, attempt = running_training()
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    until(lambda: little.codes)
    run_files.attempt_file(run).unlink()
    run.journal.unlink()
    little.paused.set()
    until(lambda: "run.taken_over" in announced(run))
    (place / "enough").touch()

    assert little.wait(60)
    steps = steps_of(run)
    assert run_files.outcome(run).code == 0
    assert steps == list(range(len(steps)))
    assert not run_files.lives(attempt.process)


def test_a_training_that_ended_well_in_between_is_not_trained_again(launchd, place):
    little = launchd(LONG)
    run, attempt = running_training()
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    (place / "enough").touch()
    until(lambda: not run_files.lives(attempt.process))
    little.paused.set()

    assert little.wait(60)
    end = run_files.outcome(run)
    assert (end.code, end.attempts) == (0, 1)
    assert steps_of(run) == list(range(len(steps_of(run))))


def left_alone(little, place, run: RunDir, attempt: run_files.AttemptRecord, *, waiter: bool = True) -> None:
    """Kill stallguard, let the training end by itself, and let stallguard be started again."""
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    if not waiter:
        psutil.Process(attempt.process.pid).parent().kill()
    (place / "enough").touch()
    until(lambda: not run_files.lives(attempt.process))
    little.paused.set()


def test_the_exit_code_of_a_training_that_ended_in_between_is_its_own(launchd, place):
    little = launchd(LONG, end="sys.exit(3)")
    run, attempt = running_training()
    left_alone(little, place, run, attempt)

    assert little.wait(60)
    end = run_files.outcome(run)
    assert (end.code, end.attempts) == (3, 1)


def test_a_training_whose_end_no_process_saw_is_not_started_again(launchd, place):
    little = launchd(LONG, end="os._exit(0)")
    run, attempt = running_training()
    left_alone(little, place, run, attempt, waiter=False)

    assert little.wait(60)
    end = run_files.outcome(run)
    assert (end.code, end.attempts) == (GAVE_UP, 1)
    assert "--resume" in end.why


def test_a_training_that_was_killed_in_between_is_started_again(launchd, place):
    little = launchd(LONG)
    run, attempt = running_training()
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    os.killpg(attempt.process.pid, signal.SIGKILL)
    until(lambda: not run_files.lives(attempt.process))
    (place / "enough").touch()
    little.paused.set()

    assert little.wait(60)
    end = run_files.outcome(run)
    assert (end.code, end.attempts) == (0, 2)
    assert steps_of(run)[-1] == 0, "the second attempt was told at once that it is enough"


def test_after_a_reboot_the_next_attempt_resumes(launchd, place):
    little = launchd(LONG)
    run, attempt = running_training()
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    os.killpg(attempt.process.pid, signal.SIGKILL)
    until(lambda: not run_files.lives(attempt.process))
    (place / "enough").touch()
    long_ago = msgspec.structs.replace(run_files.asked(run).supervisor, boot="an earlier one")
    run_files.write(run.asked, msgspec.structs.replace(run_files.asked(run), supervisor=long_ago))
    little.paused.set()

    assert little.wait(60)
    end = run_files.outcome(run)
    assert (end.code, end.attempts) == (0, 2)
    check_ledger(run, end)
    lines = [msgspec.json.decode(entry.raw) for entry in journal.read(run.journal)]
    assert [
        line["resume"] for line in lines if line["event"] == "attempt.start_requested" and line["attempt"] == 2
    ] == [True]


def test_an_adopted_training_is_ended_like_any_other(launchd):
    little = launchd(1000)
    run, attempt = running_training()
    os.kill(little.process.pid, signal.SIGKILL)
    until(lambda: "run.taken_over" in announced(run))
    until(lambda: little.process.poll() is None)
    little.process.terminate()

    assert little.wait(60)
    assert not run_files.lives(attempt.process)
    assert little.codes == [-signal.SIGKILL, 0], "the service manager must not start it again"
    assert run_files.outcome(run) is not None


def test_uninstalling_ends_a_training_whose_stallguard_has_just_died(launchd, place, monkeypatch):
    little = launchd(LONG)
    run, attempt = running_training()
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    until(lambda: little.codes)

    class Manager:
        """A service manager that is about to start the job again when it is told to forget it."""

        def program(self, _name):
            return tuple(little.keys["ProgramArguments"])

        def uninstall(self, _name):
            little._stop.set()

    monkeypatch.setattr(verbs, "_own", Manager)
    monkeypatch.chdir(place)
    result = CliRunner().invoke(verbs.command, ["uninstall", "--name", "night"])

    assert result.exit_code == 0, result.output
    assert not run_files.lives(attempt.process)
    assert run_files.outcome(run).why == "you asked to stop"
    assert job_memory.names() == []


def test_a_dead_process_that_no_process_waited_for_does_not_live(place):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    who = run_files.identity(child.pid)
    until(lambda: not run_files.lives(who))
    child.wait()


def test_a_script_that_fails_is_not_started_for_ever(launchd):
    little = launchd(1, end="raise SystemExit('no data')")

    assert little.wait(60)
    assert little.codes == [0]
    assert run_files.outcome(next(iter(list_runs()))).code == 1


def test_the_log_has_stallguards_words_and_a_job_with_nothing_due_ends_at_once(launchd, place):
    little = launchd(3)
    assert little.wait(60)
    log = (place / "night.log").read_text()
    assert "begin, you started it" in log
    assert "finished: 3 batches" in log
    assert "step" not in log, "the training's words are not in it"

    again = LittleLaunchd(plistlib.dumps(little.keys))
    again.start()

    assert again.wait(20)
    assert len(list_runs()) == 1
    assert "nothing is due" in (place / "night.log").read_text()


HANG = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"


def test_evidence_that_was_being_gathered_is_gathered_again(launchd):
    little = launchd(40, HANG, ("--observe", "--patience", "0.25"))
    run, _ = running_training()
    until(lambda: "evidence.collected" in announced(run), 120)
    little.paused.clear()
    os.kill(little.process.pid, signal.SIGKILL)
    until(lambda: little.codes)
    kept = run.journal.read_bytes().splitlines(keepends=True)
    verdict = next(number for number, line in enumerate(kept) if b'"training.stalled"' in line)
    run.journal.write_bytes(b"".join(kept[: verdict + 1]))  # as if it had died here
    shutil.rmtree(run.path / "incidents")
    little.paused.set()

    until((run.incident(1) / "manifest.json").exists, 120)
    until(lambda: "evidence.collected" in announced(run))
    [collected] = [event for event in journal.events(run.journal) if isinstance(event, Collected)]
    assert "train.py" in collected.where, "the script's own line that it hangs in"
    assert "everything" not in collected.missing

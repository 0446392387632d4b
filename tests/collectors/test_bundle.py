"""Evidence of a real stuck process is gathered within its budgets, whatever a collector or the disk does."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from stallguard import outcome
from stallguard.collectors import Collector, Context, Nothing, bundle, registry, tools
from stallguard.collectors.sheet import fit
from stallguard.collectors.system import tail

LONG = 20.0
SECRET = "s3cr3t-hunter2222"

ARMED = """
    import ctypes, faulthandler, signal, sys, threading, time
    faulthandler.register(signal.SIGUSR1, file=open(sys.argv[1], "a"), all_threads=True, chain=False)

    def go():
        print("go", flush=True)

    def lock():
        it = threading.Lock()
        it.acquire()
        go()
        it.acquire()  # here

    def spin():
        go()
        count = 0
        while True:
            count += 1
            count -= 1
            time.sleep(0)

    def gil():
        libc = ctypes.PyDLL(None)
        mutex = ctypes.create_string_buffer(128)
        libc.pthread_mutex_lock(mutex)
        go()
        libc.pthread_mutex_lock(mutex)

    def stopped():
        go()
        signal.raise_signal(signal.SIGSTOP)

    def reads():
        go()
        sys.stdin.buffer.raw.read(1)
        sys.stdin.buffer.raw.read(1)

    globals()[sys.argv[2]]()
"""


class Stuck:
    """A Python process that hangs, and the directory of a run around it."""

    def __init__(self, place, kind):
        self.run = place
        (place / "probe").mkdir()
        self.script = place / "train.py"
        self.script.write_text(textwrap.dedent(ARMED))
        self.stacks = place / "probe" / "1.stacks"
        argv = [sys.executable, str(self.script), str(self.stacks), kind, "--api-key", SECRET]
        self.argv = tuple(argv)
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"go\n"
        time.sleep(0.1)  # from the word to the wait itself

    def context(self, **more):
        pid = self.process.pid
        given = {
            "incident": 1, "pid": pid, "armed": True, "stacks": self.stacks, "run": self.run, "home": "/home/ada",
            "directory": self.run / "incidents" / "1", "argv": self.argv, "cwd": str(self.run),
            "environment": {"WANDB_API_KEY": SECRET, "TF_THING": "1"}, "identity": outcome.identity(pid),
        }  # fmt: skip
        return Context(**(given | more))

    def at(self, text, function):
        """Return where a dump should find the process: the line of the script with `text`."""
        lines = self.script.read_text().splitlines()
        return f"train.py:{1 + next(n for n, line in enumerate(lines) if text in line)} in {function}"

    def close(self):
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def stuck(tmp_path):
    made = []

    def make(kind):
        made.append(Stuck(tmp_path, kind))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def release():
    """An event that lets hanging collectors go at the end, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def context(tmp_path, **more):
    given = {
        "incident": 1,
        "pid": os.getpid(),
        "armed": False,
        "stacks": tmp_path / "x",
        "directory": tmp_path / "1",
    }
    return Context(**(given | more))


def item(manifest, name):
    return next(each for each in manifest.items if each.name == name)


# ---- what is gathered ------------------------------------------------------------------------------------------


def test_a_deadlock_is_told_with_the_line_of_the_script(stuck):
    process = stuck("lock")
    began = time.monotonic()
    collected = bundle.collect(process.context())
    assert time.monotonic() - began < 5
    assert collected.where == process.at("it.acquire()  # here", "lock")
    assert collected.missing == ()
    if sys.platform == "linux":
        assert collected.stacks == ("lock",)


@pytest.mark.parametrize(("kind", "where"), [("gil", "in gil"), ("spin", "in spin")])
def test_stacks_come_with_the_interpreters_lock_held_and_from_a_spinning_thread(stuck, kind, where):
    assert bundle.collect(stuck(kind).context()).where.endswith(where)


def test_the_bundle_is_complete_and_holds_no_secret(stuck):
    process = stuck("lock")
    (process.run / "output.log").write_text(f"Epoch 1\nusing key {SECRET} from /home/ada/.netrc\n")
    (process.run / "journal.jsonl").write_text('{"kind": "event"}\n' * 3)
    manifest = bundle.gather(process.context(include_source=True, script=process.script))
    directory = process.run / "incidents" / "1"
    names = {path.name for path in directory.iterdir()}
    assert {"stacks.txt", "output.txt", "journal.jsonl", "environment.json", "versions.json", "processes.json",
            "source-train.py", "manifest.json"} <= names  # fmt: skip
    if sys.platform == "linux":
        assert {"threads.txt", "maps.txt", "files.txt"} <= names
    for path in directory.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    told = json.loads((directory / "manifest.json").read_bytes())
    assert told["removed"]["known"] >= 1
    assert told["removed"]["home"] >= 1
    assert {file["name"] for each in told["items"] for file in each.get("files", ())} == names - {
        "manifest.json"
    }
    assert manifest.size == sum(
        path.stat().st_size for path in directory.iterdir() if path.name != "manifest.json"
    )


def test_the_scripts_text_is_taken_only_where_that_is_wanted(stuck):
    process = stuck("lock")
    manifest = bundle.gather(process.context(script=process.script))
    assert item(manifest, "source").state == "nothing"
    assert not (process.run / "incidents/1/source-train.py").exists()


@pytest.mark.parametrize("moves", [False, True])
def test_a_second_dump_tells_whether_it_moved(stuck, moves):
    process = stuck("reads")

    def push(*_):
        process.process.stdin.write(b"x" if moves else b"")
        process.process.stdin.flush()

    collectors = [
        Collector("stacks", registry.python_stacks, LONG, 10_000, first=True),
        Collector("push", push, LONG, 1, first=True),
        Collector("stacks-again", registry.stacks_again, LONG, 10_000),
    ]
    assert bundle.gather(process.context(again=0.1), collectors).moved is moves


def test_without_a_second_dump_nobody_says_whether_it_moved(stuck):
    assert bundle.gather(stuck("lock").context()).moved is None


def test_an_older_dump_in_the_file_is_not_taken_for_a_new_one(stuck):
    process = stuck("lock")
    process.stacks.write_text(
        'Current thread 0x1 (most recent call first):\n  File "old.py", line 1 in <module>\n'
    )
    assert bundle.gather(process.context()).where == process.at("it.acquire()  # here", "lock")
    assert "old.py" not in (process.run / "incidents/1/stacks.txt").read_text()


# ---- whom it must not hurt ------------------------------------------------------------------------------------------


def test_a_process_that_did_not_arm_the_signal_is_left_alone(tmp_path):
    plain = subprocess.Popen(["sleep", "60"])
    try:
        manifest = bundle.gather(context(tmp_path, pid=plain.pid))
        assert item(manifest, "stacks").state == "nothing"
        assert plain.poll() is None
        assert "processes.json" in {file.name for file in item(manifest, "processes").files}
    finally:
        plain.kill()
        plain.wait()


def test_a_stranger_under_the_same_number_is_left_alone(tmp_path):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        other = outcome.Identity(pid=stranger.pid, started=psutil.Process(stranger.pid).create_time() - 100)
        manifest = bundle.gather(context(tmp_path, pid=stranger.pid, armed=True, identity=other))
        assert item(manifest, "stacks").why == "the process is gone"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_stopped_process_is_not_waited_for(stuck):
    process = stuck("stopped")
    while psutil.Process(process.process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    manifest = bundle.gather(process.context())
    assert "stopped" in item(manifest, "stacks").why
    assert item(manifest, "stacks").seconds < 1


def test_a_process_that_is_gone_leaves_a_bundle_that_says_so(stuck):
    process = stuck("lock")
    before = process.context()
    process.process.kill()
    process.process.wait()
    manifest = bundle.gather(before)
    assert item(manifest, "stacks").why == "the process is gone"
    assert item(manifest, "environment").state == "collected"


def test_a_dump_does_not_end_or_stop_the_process(stuck):
    process = stuck("lock")
    for number in range(3):
        bundle.gather(process.context(incident=number, directory=process.run / str(number)))
    assert process.process.poll() is None
    assert psutil.Process(process.process.pid).status() != psutil.STATUS_STOPPED


# ---- budgets --------------------------------------------------------------------------------------------------------


def quick(name, **more):
    return Collector(name, lambda _, sheet: sheet.text(f"{name}.txt", name), 1.0, 1000, **more)


def test_a_collector_that_hangs_costs_its_own_time_and_nobody_elses(tmp_path, release):
    hang = Collector("hang", lambda *_: release.wait(LONG), 0.2, 1000, first=True)
    later = Collector("later", lambda *_: release.wait(LONG), 0.3, 1000)
    manifest = bundle.gather(context(tmp_path), [hang, quick("a", first=True), later, quick("b")])
    assert manifest.missing == ("hang", "later")
    assert item(manifest, "hang").state == "late"
    assert (tmp_path / "1/a.txt").exists()
    assert (tmp_path / "1/b.txt").exists()
    assert manifest.seconds < LONG / 2


def test_all_together_keep_to_the_whole_budget(tmp_path, release):
    hangs = [Collector(f"h{n}", lambda *_: release.wait(LONG), LONG, 1000, first=n < 2) for n in range(6)]
    began = time.monotonic()
    manifest = bundle.gather(context(tmp_path, budget=0.5), hangs)
    assert time.monotonic() - began < LONG / 2
    assert len(manifest.missing) == 6


def test_a_late_collector_writes_nothing_any_more(tmp_path):
    done = threading.Event()

    def slow(_context, sheet):
        time.sleep(0.4)
        sheet.text("late.txt", "x")
        done.set()

    longer = Collector(
        "longer", lambda *_: time.sleep(0.8), 5.0, 1000
    )  # so that the late one ends before all do
    manifest = bundle.gather(context(tmp_path), [Collector("slow", slow, 0.1, 1000), longer])
    assert done.wait(LONG)
    assert item(manifest, "slow").state == "late"
    assert not (tmp_path / "1/late.txt").exists()


def test_a_collector_that_floods_is_cut_and_says_so(tmp_path):
    def flood(_context, sheet):
        for number in range(100):
            sheet.text(f"flood{number}.txt", "line\n" * 100_000)

    manifest = bundle.gather(context(tmp_path), [Collector("flood", flood, LONG, 1_000_000)])
    assert sum(path.stat().st_size for path in (tmp_path / "1").iterdir()) < 1_100_000
    assert any(file.cut for file in item(manifest, "flood").files)


def test_a_tool_that_floods_or_hangs_is_ended_and_what_it_said_is_kept():
    began = time.monotonic()
    flood = tools.run(("/bin/sh", "-c", "yes"), LONG, 100_000)
    assert (len(flood.text), flood.why) == (100_000, "it said more than was wanted")
    hang = tools.run(("/bin/sh", "-c", "echo so far; sleep 60 & sleep 60"), 0.3, 1000)
    assert hang.text == b"so far\n"
    assert "killed" in hang.why
    assert tools.run(("/bin/sh", "-c", "echo no >&2; exit 3"), LONG, 1000) == (
        b"no\n",
        "it ended with exit code 3",
    )
    assert time.monotonic() - began < 5


def test_half_a_secret_at_the_cut_is_not_written(tmp_path):
    text = "x" * 900 + "\n" + "y" * 90 + " " + SECRET + "\n"

    def write(_context, sheet):
        sheet.text("cut.txt", text)

    bundle.gather(context(tmp_path, environment={"MY_TOKEN": SECRET}), [Collector("c", write, 1.0, 1000)])
    assert b"s3cr" not in (tmp_path / "1/cut.txt").read_bytes()
    assert fit(b"no line at all " * 100, 1000) == (b"no line at all " * 100)[:488]


def test_a_full_disk_still_tells_where_it_hangs(stuck):
    process = stuck("lock")
    asked = process.context()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (0, limits[1])
    )  # every write of this process fails, as on a full disk
    try:
        collected = bundle.collect(asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert collected.where == process.at("it.acquire()  # here", "lock")
    assert "stacks" in collected.missing
    assert process.process.poll() is None


def test_a_directory_that_cannot_be_made_is_no_reason_to_raise(stuck):
    process = stuck("lock")
    (process.run / "incidents").write_text("a file in the way")
    collected = bundle.collect(process.context())
    assert collected.where == process.at("it.acquire()  # here", "lock")


def test_a_collector_that_fails_or_finds_nothing_is_told(tmp_path):
    def fails(*_):
        raise ValueError("token=abcdefgh")

    def finds_nothing(*_):
        raise Nothing("there is none")

    manifest = bundle.gather(
        context(tmp_path), [Collector("f", fails, 1, 1), Collector("n", finds_nothing, 1, 1), quick("q")]
    )
    assert item(manifest, "f").why == "ValueError: token=[removed: secret]"
    assert (item(manifest, "n").state, item(manifest, "n").why) == ("nothing", "there is none")
    assert manifest.missing == ("f",)


def test_a_plug_in_gathers_too_and_a_broken_one_is_told(tmp_path, monkeypatch):
    (tmp_path / "lib/extra-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "lib/extra-1.0.dist-info/METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (tmp_path / "lib/extra-1.0.dist-info/entry_points.txt").write_text(
        "[stallguard.collectors]\nextra = extra_collector:IT\nbroken = extra_collector:ABSENT\n"
    )
    (tmp_path / "lib/extra_collector.py").write_text(
        "from stallguard.collectors import Collector\n"
        "IT = Collector('extra', lambda context, sheet: sheet.text('extra.txt', 'hi'), 1.0, 100)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    manifest = bundle.gather(context(tmp_path))
    assert (tmp_path / "1/extra.txt").read_text() == "hi"
    assert item(manifest, "broken").state == "failed"


# ---- the end of the output ---------------------------------------------------------------------------------------


def test_the_tail_crosses_parts_and_begins_with_a_whole_line(tmp_path):
    (tmp_path / "output.1.log").write_text("first\nsecond\n")
    (tmp_path / "output.log").write_text("third\n")
    assert tail(tmp_path / "output.log", 100) == b"first\nsecond\nthird\n"
    assert tail(tmp_path / "output.log", 15) == b"second\nthird\n"
    (tmp_path / "output.log").write_bytes(b"old bar\r 1/9\r 2/9\r 3/9")
    assert tail(tmp_path / "output.log", 12) == b" 2/9\r 3/9"

"""The process that trains is the one that is counted: launchers, workers, forks, programs that replace themselves."""

from __future__ import annotations

import mmap
import os
import sys
import time

import pytest

from stallguard.probe import stack_dumps, wire
from tests.probe.receiver import Heard, python

TRAIN = "import stallguard, sys; stallguard.beat(int(sys.argv[1]))"
LAUNCH = "import subprocess, sys; [subprocess.run([sys.executable, '-c', *sys.argv[1:]]) for _ in 'ab']"
TRAINS = wire.FLAG_TRAINS


def beats(heartbeat):
    """Return the beats of each page, in order."""
    return sorted(page["beats"] for page in heartbeat.pages.values())


def program(tmp_path, text, name="train.py"):
    """Return the command of a program in a file."""
    file = tmp_path / name
    file.write_text(text)
    return [sys.executable, str(file)]


def test_a_process_that_does_not_train_says_nothing_and_has_only_the_file_of_its_crash_open(receiver):
    low = f"sum(int(name) < {stack_dumps.HIGH} for name in os.listdir('/dev/fd'))"
    code = f"import os, threading; print(threading.active_count(), {low})"
    heartbeat = receiver.run(python(code))
    plain = receiver.run([sys.executable, "-I", "-c", code])
    assert heartbeat.out == plain.out
    assert (heartbeat.records, heartbeat.notes, heartbeat.pages) == ([], [], {})
    assert [path.stat().st_size for path in (receiver.folder / "probe").glob("*.crash")] == [0]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ('"$PY" -c pass; "$PY" -c "$TRAIN" 7', [7]),
        ('for s in 1 2 3; do "$PY" -c "$TRAIN" $s; done', [1, 2, 3]),
        ('for s in 1 2 3; do "$PY" -c "$TRAIN" $s & done; wait', [1, 2, 3]),
        ('"$PY" -c "$LAUNCH" "$TRAIN" 4', [4, 4]),
    ],
    ids=["helper first", "one after the other", "side by side", "launcher"],
)
def test_each_training_has_its_page_and_its_place(receiver, shell, expected):
    heartbeat = receiver.run(["sh", "-c", shell], PY=sys.executable, TRAIN=TRAIN, LAUNCH=LAUNCH)
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert beats(heartbeat) == expected
    assert all(page["flags"] & TRAINS for page in heartbeat.pages.values())
    places = {note["place"] for note in heartbeat.notes if note["kind"] == "hello"}
    assert len(places) == len(expected)
    assert "" not in places


MULTIPROCESSING = """
import multiprocessing, sys, time
import stallguard

def work(_):
    stallguard.beat(100)

def train(number):
    stallguard.beat(number)
    context = multiprocessing.get_context(sys.argv[1])
    worker = context.Process(target=work, args=(0,))
    worker.start()
    worker.join()
    stallguard.beat()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=train, args=(number,)) for number in (1, 3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(*[child.exitcode for child in children])
"""


@pytest.mark.parametrize("way", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing_that_train_are_trainings_and_their_workers_are_silent(receiver, tmp_path, way):
    heartbeat = receiver.run([*program(tmp_path, MULTIPROCESSING), way], cwd=tmp_path)
    assert (heartbeat.code, heartbeat.out, heartbeat.err) == (0, "0 0\n", "")
    assert beats(heartbeat) == [2, 4]
    last = {record["pid"]: wire.KINDS[record["kind"]] for record in heartbeat.records}
    assert last == dict.fromkeys(heartbeat.pages, "bye")
    hellos = {note["pid"]: note for note in heartbeat.notes if note["kind"] == "hello"}
    assert len({hello["place"] for hello in hellos.values()}) == 2
    assert all(hello["command"].startswith(f"train.py {way} (") for hello in hellos.values())


@pytest.mark.costly
@pytest.mark.parametrize("way", ["spawn", "fork", "forkserver"])
def test_the_place_of_a_child_is_found_again_by_the_next_attempt(receiver, tmp_path, way):
    command = [*program(tmp_path, MULTIPROCESSING.replace("child.start()", "child.start(); child.join()")), way]

    def attempt(token):
        heartbeat = receiver.run(command, cwd=tmp_path, token=token)
        # A hello is said again when it changes.
        return list({note["pid"]: note["place"] for note in heartbeat.notes if note["kind"] == "hello"}.values())

    first, second = attempt(1), attempt(2)
    assert first == second
    assert len(set(first)) == 2


BOTH_FORKED = """
import os, stallguard
if not {parent_first}:
    child = os.fork()
stallguard.beat(1)
if {parent_first}:
    child = os.fork()
    stallguard.beat(1)
if child:
    os.waitpid(child, 0)
"""


def test_a_fork_of_what_trains_is_a_worker_and_a_fork_of_what_does_not_may_train(receiver):
    before = receiver.run(python(BOTH_FORKED.format(parent_first=True)))
    assert beats(before) == [2]
    for page in (receiver.folder / "probe").glob("*.page"):
        page.unlink()
    after = receiver.run(python(BOTH_FORKED.format(parent_first=False)))
    assert beats(after) == [1, 1]


def test_the_stacks_of_a_forked_training_go_to_its_own_file(receiver):
    code = """
import os, signal, stallguard, time
with stallguard.phase("before"):
    child = os.fork()
def at_work():
    stallguard.beat()
    time.sleep(0.2)  # Python 3.14 shows no stack while a thread begins, as the probe's does
    os.kill(os.getpid(), signal.SIGURG)
if child:
    os.waitpid(child, 0)
else:
    at_work()
"""
    heartbeat = receiver.run(python(code))
    (training,) = [pid for pid, page in heartbeat.pages.items() if page["beats"]]
    (parent,) = heartbeat.pages.keys() - {training}
    assert "in at_work" in receiver.stacks(training)
    assert receiver.stacks(parent) == ""


LAUNCHES = """
import subprocess, sys, stallguard
with stallguard.phase("launch"):  # it speaks, but does not train
    subprocess.run([sys.executable, "-c", "import stallguard; stallguard.beat(5)"], check=True)
"""


def test_a_launcher_that_speaks_is_seen_and_hides_nothing(receiver):
    heartbeat = receiver.run(python(LAUNCHES))
    assert beats(heartbeat) == [0, 5]
    assert [page["beats"] for page in heartbeat.pages.values() if page["flags"] & TRAINS] == [5]


def test_a_library_makes_a_process_seen_before_it_trains(receiver, tmp_path):
    (tmp_path / "torch.py").write_text("import time; time.sleep(0.3)\n")
    heartbeat = receiver.run(python("import torch"), PYTHONPATH=str(tmp_path))
    assert [page["flags"] & TRAINS for page in heartbeat.pages.values()] == [0]
    assert heartbeat.hello()["armed"] is True


POOL = """
import multiprocessing, torch
def work(number):
    return number
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(work, range(4))
"""


def test_a_pool_that_imports_a_library_and_does_not_train_is_not_seen(receiver, tmp_path):
    (tmp_path / "torch.py").touch()
    heartbeat = receiver.run(program(tmp_path, POOL), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert len(heartbeat.pages) == 1


AGAIN = """
import os, sys, time, stallguard
left = int(sys.argv[1])
stallguard.beat(left)
time.sleep(0.5)
if left > 1:
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(left - 1)])
stallguard.beat(10)
"""


def test_a_program_that_replaces_itself_is_another_training_of_the_same_number(receiver, tmp_path):
    heartbeat = receiver.run([*program(tmp_path, AGAIN), "3"])
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert beats(heartbeat) == [11]
    assert len({record["began_ns"] for record in heartbeat.records}) == 3
    assert len({record["pid"] for record in heartbeat.records}) == 1
    assert len({note["place"] for note in heartbeat.notes if note["kind"] == "hello"}) == 3


def test_a_page_that_is_mapped_can_be_read_after_its_process_replaced_itself(receiver, tmp_path):
    """A mapped file that is truncated would end its reader by SIGBUS, so that reader is a process of its own."""
    child = receiver.start([*program(tmp_path, AGAIN), "2"])
    path, heartbeat = receiver.folder / "probe" / f"{child.pid}.page", Heard()
    while not heartbeat.records:
        receiver.receive(heartbeat)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        while len({record["began_ns"] for record in heartbeat.records}) < 2:
            receiver.receive(heartbeat)
        reader = os.fork()
        if not reader:
            os._exit(0 if wire.unpack(mapped[:])["beats"] == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
    assert child.wait(20) == 0
    assert receiver.pages()[child.pid]["beats"] == 11


@pytest.mark.parametrize(("end", "failed"), [("", 0), ("1 / 0", wire.FLAG_FAILED)])
def test_the_goodbye_says_whether_an_exception_ended_the_script(receiver, end, failed):
    heartbeat = receiver.run(python(f"import stallguard\nstallguard.beat()\n{end}"))
    assert heartbeat.last()["flags"] & wire.FLAG_FAILED == failed


KERNEL = """
import sys, threading, time, types
kernel = types.ModuleType("ipykernel"); sys.modules["ipykernel"] = kernel
exec("import time\\ndef poll(): time.sleep(60)", kernel.__dict__)
kernel.poll.__module__ = "ipykernel.iostream"
own = threading.Thread(target=kernel.poll, daemon=True); own.start()
other = threading.Thread(target=time.sleep, args=(60,), daemon=True); other.start()
import stallguard
stallguard.beat()
time.sleep(1.6)
print(own.native_id, other.native_id)
"""


def test_the_threads_of_a_notebooks_kernel_are_named(receiver):
    heartbeat = receiver.run(python(KERNEL))
    own, other = map(int, heartbeat.out.split())
    assert own in heartbeat.hello()["threads"]
    assert other not in heartbeat.hello()["threads"]


OPTIMIZERS = """
import os, sys
import keras.src.optimizers.base_optimizer as module
module.Optimizer()  # its counter is watched from a thread from now on
child = os.fork()
if not child:
    module.Optimizer()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
LIKE_AN_OPTIMIZER = """
class Optimizer:
    def __init__(self): self._iterations = None
    def apply_gradients(self): pass
"""


def test_a_forked_process_may_make_optimizers_of_its_own(receiver, tmp_path):
    home = tmp_path / "keras" / "src" / "optimizers"
    home.mkdir(parents=True)
    for folder in (home, home.parent, home.parent.parent):
        (folder / "__init__.py").touch()
    (home / "base_optimizer.py").write_text(LIKE_AN_OPTIMIZER)
    began = time.monotonic()
    heartbeat = receiver.run(python(OPTIMIZERS), timeout=20, PYTHONPATH=str(tmp_path))
    assert (heartbeat.out, heartbeat.err) == ("7\n", "")
    assert time.monotonic() - began < 20

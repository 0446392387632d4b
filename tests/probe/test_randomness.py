"""What a script leaves unseeded is the same in each attempt of a run, and as random as ever otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from stallguard.probe import seeds
from tests.probe.attempts import OTHER, SEED, Attempts, printed, same
from tests.probe.receiver import python

PYTHON = """
import random
first = random.random()
from random import seed, Random
import json, os, secrets, sys, tempfile, uuid

class Own(random.Random):
    pass

def reseeded(*how):
    seed(*how)
    return random.random()

kept = {
    "global": first, "gauss": random.gauss(0, 1), "shuffle": random.sample(range(1000), 9),
    "instance": random.Random().random(), "another instance": Random(None).random(), "subclass": Own().random(),
    "seed()": reseeded(), "seed() again": reseeded(), "seed(None)": reseeded(None),
}
free = {
    "secrets": secrets.token_hex(), "uuid4": str(uuid.uuid4()), "urandom": os.urandom(9).hex(),
    "SystemRandom": random.SystemRandom().random(), "names": next(tempfile._get_candidate_names()),
    "directory": tempfile.mkdtemp(dir=os.getcwd()),
}
seeded = {"seed(1)": reseeded(1), "Random('a')": random.Random("a").random(), "bytes": reseeded(b"x")}
print(json.dumps({"kept": kept, "free": free, "seeded": seeded}))
"""
NUMPY = """
import numpy as np
from numpy.random import default_rng, RandomState
import json, random

def check_random_state():  # as scikit-learn does
    return np.random.mtrand._rand

def reseeded():
    np.random.seed()
    return np.random.random()

kept = {
    "default_rng()": default_rng().random(), "another": np.random.default_rng().random(),
    "global": np.random.rand(), "permutation": np.random.permutation(1000)[:9].tolist(),
    "check_random_state": check_random_state().randint(10**9), "RandomState()": RandomState().rand(),
    "PCG64()": int(np.random.PCG64().random_raw()), "MT19937()": int(np.random.MT19937().random_raw()),
    "Philox()": int(np.random.Philox().random_raw()), "SeedSequence()": np.random.SeedSequence().entropy,
    "wide": np.random.SeedSequence(pool_size=32).entropy,
    "spawned": default_rng(np.random.SeedSequence().spawn(1)[0]).random(),
    "seed()": reseeded(), "seed() again": reseeded(), "random": random.random(),
}
seeded = {"default_rng(7)": default_rng(7).random(), "RandomState(7)": RandomState(7).rand(),
          "sequence": int(np.random.SeedSequence([1, 2]).generate_state(1)[0])}
np.random.seed(7)
seeded["seed(7)"] = np.random.rand()
print(json.dumps({"kept": kept, "free": {}, "seeded": seeded}))
"""

SEEN = "; import stallguard; stallguard.beat()"  # a process that does not train says nothing


@pytest.fixture(params=["3.9", "3.10", "3.11", "3.12", "3.13", "numpy 2", "numpy 1"])
def script(request, receiver, tmp_path, python_of, other_python):
    """What draws from Python's generators, on each Python, and from numpy's."""
    if request.param == "numpy 2":
        return Attempts(receiver, tmp_path, NUMPY)
    if request.param == "numpy 1":
        return Attempts(receiver, tmp_path, NUMPY, other_python("keras2"))
    return Attempts(receiver, tmp_path, PYTHON, python_of(request.param))


def test_each_attempt_of_a_run_draws_the_same(script):
    first, second = script.draws(), script.draws()
    assert first["kept"] == second["kept"]
    assert not same(first["free"], second["free"])


def test_two_draws_of_a_process_differ(script):
    kept = script.draws()["kept"]
    assert len({json.dumps(value) for value in kept.values()}) == len(kept)


def test_two_processes_of_an_attempt_differ_and_each_is_found_again(script):
    first, second = ([printed(script.run()), printed(script.again())] for _ in range(2))
    assert [draws["kept"] for draws in first] == [draws["kept"] for draws in second]
    assert not same(first[0]["kept"], first[1]["kept"])


def test_two_runs_differ(script):
    assert not same(script.draws()["kept"], script.draws(OTHER)["kept"])


def test_with_the_switch_off_the_attempts_differ(script):
    assert not same(script.draws("")["kept"], script.draws("")["kept"])


def test_what_the_script_seeds_itself_is_untouched(script):
    # The second call runs the script without the probe.
    assert script.draws()["seeded"] == script.draws("", STALLGUARD_OWNER="1")["seeded"]


def test_a_library_that_names_its_files_at_random_still_does(receiver, tmp_path):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets/__init__.py").touch()
    (tmp_path / "datasets/fingerprint.py").write_text("import random\nrng = random.Random()\n")
    code = "import json; from datasets.fingerprint import rng; print(json.dumps(rng.random()))"
    attempts = Attempts(receiver, tmp_path, code)
    assert attempts.draws() != attempts.draws()


WORKERS = """
import json, multiprocessing, os, random
try:
    import numpy as np
except ImportError:
    np = None

def work(_):
    return random.random(), random.Random().random(), np and np.random.default_rng().random()

if __name__ == "__main__":
    found = {"own": work(0)}
    for way in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(way).Pool(2) as pool:
            found[way] = pool.map(work, range(8), chunksize=1)
    found["last"] = work(0)
    print(json.dumps(found))
"""


@pytest.mark.costly
def test_workers_are_as_random_as_without_us(receiver, tmp_path):
    attempts = Attempts(receiver, tmp_path, WORKERS)
    first, second = attempts.draws(), attempts.draws()
    assert same(first, second) == {"own", "last"}
    for way in ("spawn", "fork", "forkserver"):
        drawn = [value for draws in (first, second) for row in draws[way] for value in row]
        assert len(set(drawn)) == len(drawn)


def test_a_worker_that_no_training_started_is_not_seeded_and_that_is_said(receiver):
    words = [*python("import random; print(random.random())" + SEEN), "--multiprocessing-fork"]
    first, second = (receiver.run(words, seed=SEED, token=token) for token in "12")
    assert first.out != second.out
    assert seeds.WORKER in first.hello()["beyond"]


RACE = """
import random, threading
def draw():
    random.Random(); ready.wait()
ready = threading.Barrier(%d)
random.Random()
threads = [threading.Thread(target=draw) for _ in range(%d)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import stallguard; stallguard.beat()
"""


@pytest.mark.parametrize(("threads", "said"), [(1, False), (2, True)])
def test_threads_that_race_for_seeds_are_said(receiver, threads, said):
    heartbeat = receiver.run(python(RACE % (threads, threads)), seed=SEED)
    assert (seeds.THREADS in heartbeat.hello()["beyond"]) is said


def test_a_process_without_a_place_stays_random_and_that_is_said(receiver):
    (receiver.folder / "probe" / "places").touch()  # no directory can be made there
    first, second = (receiver.run(python("import random; print(random.random())" + SEEN), seed=SEED) for _ in "12")
    assert first.out != second.out
    assert seeds.NO_PLACE in first.hello()["beyond"]


# ---- the hash seed -------------------------------------------------------------------------------------------------

OURS = {"PYTHONHASHSEED": "77", "hash_seed": "77", "seed": SEED}
CHILD = "print(list(set('abcdefghij')), __import__('os').environ.get('PYTHONHASHSEED'))"
ORDERS = f"{CHILD}; import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], check=True){SEEN}"


def test_sets_of_strings_keep_their_order_and_the_script_does_not_see_why(receiver):
    first, second = (receiver.run(python(ORDERS), **OURS) for _ in range(2))
    assert first.out == second.out
    order = first.out.partition("]")[0]
    assert [line.startswith(order) for line in first.out.splitlines()] == [True, True]
    assert first.out.splitlines()[0].endswith("None")
    assert not [said for said in first.hello()["beyond"] if "sets" in said]


def test_a_script_that_starts_itself_again_with_its_own_hash_seed_does_so(receiver):
    code = (
        "import os, sys\n"
        "if not os.environ.get('PYTHONHASHSEED'):\n"
        "    os.environ['PYTHONHASHSEED'] = '5'\n"
        "    os.execv(sys.executable, [sys.executable, __file__])\n"
        "print(os.environ['PYTHONHASHSEED'], list(set('abcdefghij')))\n"
    )
    file = receiver.folder / "again.py"
    file.write_text(code)
    heartbeat = receiver.run([sys.executable, str(file)], **OURS)
    plain = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True, env=_bare())
    assert heartbeat.out == plain.stdout
    assert heartbeat.out.startswith("5 ")


def _bare():
    return {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}


@pytest.mark.parametrize(("own", "said"), [("5", False), ("0", False), ("random", True)])
def test_the_users_own_hash_seed_stays_and_a_random_one_is_said(receiver, own, said):
    heartbeat = receiver.run(python(CHILD + SEEN), **{**OURS, "PYTHONHASHSEED": own})
    assert heartbeat.out.split()[-1] == own
    assert (seeds.HASHES % own in heartbeat.hello()["beyond"]) is said


# ---- the seeds -----------------------------------------------------------------------------------------------------


def test_ten_thousand_uses_get_ten_thousand_seeds():
    one = seeds.Seeds("1", "a-1", print)
    drawn = [one.draw("numpy", 31) for _ in range(10_000)]
    # 31 bits: about 0.02 equal pairs are expected of independent ones
    assert len(set(drawn)) >= 9_999
    assert abs(sum(seed >> 30 for seed in drawn) - 5_000) < 300  # six standard deviations
    assert max(drawn) < 2**31


def test_seeds_go_on_where_an_earlier_attempt_was():
    first, second = (seeds.Seeds("1", "a-1", print) for _ in range(2))
    before = [first.draw("random", 64) for _ in range(3)]
    uses = json.loads(json.dumps(first.uses()))
    second.draw("numpy", 64)
    second.resume(uses)
    assert second.draw("random", 64) == first.draw("random", 64) not in before


def test_a_forked_process_draws_from_the_system_and_says_so():
    said = []
    one = seeds.Seeds("1", "a-1", said.append)
    one.end()
    assert one.draw("numpy", 64) is None
    assert said == [seeds.WORKER]

"""What every test gets: a short private TMPDIR, skips with their reasons, and checks for what it left behind."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path

import hypothesis
import psutil
import pytest

from stallguard.worker import Worker, living
from tests import examples, mlx_kernels
from tests.guarded import runs
from tests.probe import imported

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
SESSION = "STALLGUARD_TEST_SESSION"  # inherited by every process that a test starts, however far down
PATIENCE = 3.0  # seconds for a thread or child that is just ending

hypothesis.settings.register_profile(
    "house", database=None, deadline=None, derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # the machines are shared: slow says nothing here
)  # fmt: skip
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("house"), max_examples=20)
hypothesis.settings.load_profile("fast" if examples.FAST in os.environ else "house")


def pytest_configure(config: pytest.Config) -> None:
    """Give the session its own TMPDIR, short enough for the path of a socket, and the signals of a terminal.

    A shell starts `scripts/test &` with SIGINT ignored, nohup ignores SIGHUP, and every child inherits both.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    worker = getattr(config, "workerinput", None)  # of xdist: its leftovers must not be taken for another's
    if worker:
        place = f"{os.environ[SESSION]}/{worker['workerid']}"
        Path(place).mkdir()
    else:
        place = tempfile.mkdtemp(prefix="sg-", dir="/tmp")
    os.environ["TMPDIR"] = tempfile.tempdir = place
    os.environ[SESSION] = place
    for name in [name for name in os.environ if name.startswith("STALLGUARD_") and not name.startswith(KEPT)]:
        del os.environ[name]  # a run around the tests must not be taken for one of theirs


KEPT = (SESSION, examples.FAST, "STALLGUARD_LIVE", "STALLGUARD_PYTHON")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the session's TMPDIR away again."""
    if not hasattr(config, "workerinput") and SESSION in os.environ:
        shutil.rmtree(os.environ.pop(SESSION), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the cheap tests first, of several workers last, so that all end together; say why a test cannot run here.

    Of several workers each takes whole files.
    """
    for item in items:
        if _is_of_whole_runs(item):
            item.add_marker(pytest.mark.live)
    items.sort(key=_weight, reverse=hasattr(config, "workerinput"))
    no_tensorflow = importlib.util.find_spec("tensorflow") is None
    for item in items:
        if no_tensorflow and item.get_closest_marker("tf"):
            item.add_marker(pytest.mark.skip(reason="this interpreter has no TensorFlow: scripts/setup installs one"))
        if "STALLGUARD_LIVE" not in os.environ and item.path.is_relative_to(ROOT / "tests/live"):
            item.add_marker(
                pytest.mark.skip(reason="needs a Mac with Apple silicon and its user's consent: scripts/live")
            )


LONGEST = (  # files that take minutes: if one of them is begun last, the other workers wait for it
    "guarded/test_ladder.py", "guarded/test_pythons.py", "guarded/test_stalls.py", "guarded/test_tracebacks.py",
    "guarded/test_trainings.py", "guarded/test_waits.py",
    "probe/checkpoint/test_callbacks.py", "probe/checkpoint/test_fit.py",
    "probe/microbatch/test_slices_tf.py", "probe/microbatch/test_training_in_slices.py",
    "test_bench_chaos.py",
)  # fmt: skip


def _weight(item: pytest.Item) -> int:
    """Return a number that is larger for a test that takes longer."""
    tf, live, waits = (item.get_closest_marker(name) is not None for name in ("tf", "live", "waits"))
    is_long = item.path.as_posix().endswith(LONGEST)
    return 4 * is_long + 2 * live + (tf or waits)


STARTERS = ("tests.guarded.runs", "tests.agent.little_launchd")  # modules whose functions start whole runs


def _is_of_whole_runs(item: pytest.Item) -> bool:
    """Tell whether a test is `live` by what it uses: whoever forgets the mark must not slow `scripts/test --fast`.

    That is each test of a file that guards whole runs or jobs, and each that starts another environment's framework.
    """
    fixtures = getattr(item, "fixturenames", ())
    used = vars(item.module).values() if isinstance(item, pytest.Function) else ()
    return (
        item.path.is_relative_to(ROOT / "tests/guarded")
        or {"other_python", "guard_keras"} & set(fixtures)
        or any(getattr(one, "__module__", "") in STARTERS for one in used)
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the collector of garbage pass over what lives until the end: the tests and all modules, a million objects."""
    # Hypothesis makes its random generator at its first use, and asks the collector who holds it; of what is frozen
    # the collector says nothing.
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def other_python():
    """Return a function from the name of an environment (keras2, torch, jax) to its interpreter; it skips if absent."""

    def find(name: str) -> str:
        path = os.environ.get(f"STALLGUARD_PYTHON_{name.upper()}") or ROOT / f".venvs/{name}/bin/python"
        if not Path(path).exists():
            pytest.skip(f"no environment {name}: scripts/setup {name} makes it")
        return str(path)

    return find


@pytest.fixture(scope="session")
def servers():
    """The processes that have imported a framework."""
    made = imported.ForkServers()
    yield made
    made.close()


@pytest.fixture(scope="session")
def guard_keras(servers):
    """`tests.guarded.runs.guard` for a script of Keras: its trainings find the libraries imported already."""
    return functools.partial(runs.guard, servers=servers)


def _sockets() -> set[tuple[int, int]]:
    found = set()
    for entry in os.listdir("/dev/fd"):  # noqa: PTH208 - bare names are what is wanted
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            facts = os.fstat(int(entry))
            if stat.S_ISSOCK(facts.st_mode):
                found.add((int(entry), facts.st_ino))
    return found


def _children() -> set[psutil.Process]:
    """psutil asks every process of the machine for its parent, twice a test; Linux keeps a list of a thread's."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if not lists:
        return set(psutil.Process().children()) - imported.SERVERS
    found = set()
    for one in lists:
        with contextlib.suppress(OSError, psutil.Error):  # the thread, or the child, is gone
            found |= {psutil.Process(int(pid)) for pid in one.read_text().split()}
    return found - imported.SERVERS


def _threads() -> set[threading.Thread | Worker]:
    # Python 3.11 keeps a dummy for each bare thread that looked at itself, also after its end.
    own = {one for one in threading.enumerate() if one.is_alive() and not one.name.startswith("Dummy-")}
    return own | living()


def _temporary() -> set[Path]:
    return {path for path in Path(tempfile.gettempdir()).iterdir() if not path.name.startswith(NOT_OURS)}


# pytest's own directories are kept until the session ends, so that a failure can be looked into; a TensorFlow that
# is killed (as many are here) leaves the sources that AutoGraph wrote, and each one their bytecode.
NOT_OURS = ("pytest-of-", "__autograph_generated_file", "__pycache__", mlx_kernels.NAME)


LEAKS = {"thread": _threads, "child process": _children, "socket": _sockets, "file in TMPDIR": _temporary}


@pytest.fixture(autouse=True)
def says_that_it_needs_tensorflow(request: pytest.FixtureRequest):
    """Fail a test that imports TensorFlow here without being marked so; only the first one could be found later."""
    before = "tensorflow" in sys.modules
    yield
    if not before and "tensorflow" in sys.modules and not request.node.get_closest_marker("tf"):
        pytest.fail("it imports TensorFlow: mark it with pytest.mark.tf", pytrace=False)


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """Fail a test that leaves a thread, a child, a socket or a temporary file behind."""
    before = {kind: look() for kind, look in LEAKS.items()}
    yield
    deadline = time.monotonic() + PATIENCE
    pause = 0.002
    while (left := _left(before)) and time.monotonic() < deadline:
        if pause > 0.1:  # what is just ending has ended by now; it costs as much as a hundred tests
            gc.collect()  # an object without a reference is no leak
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    if left:
        _end(left.get("child process", set()))
        pytest.fail(
            f"left behind: { {kind: sorted(map(str, things)) for kind, things in left.items()} }", pytrace=False
        )


def _left(before: dict) -> dict:
    left = {kind: look() - before[kind] for kind, look in LEAKS.items()}
    return {kind: things for kind, things in left.items() if things}


def _end(children: set[psutil.Process]) -> None:
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
            child.wait(PATIENCE)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session where a process that some test started still runs, even if its parent is gone."""
    if hasattr(session.config, "workerinput"):
        return
    deadline = time.monotonic() + PATIENCE
    while (orphans := _orphans()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for orphan in orphans:
        print(f"\nleft behind by a test: {orphan}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    _end(set(orphans))


def _orphans() -> list[psutil.Process]:
    mark, ours = (os.environ.get(SESSION), {os.getpid(), *(parent.pid for parent in psutil.Process().parents())})
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ended, or belongs to somebody else
            if process.pid not in ours and process.status() != "zombie" and process.environ().get(SESSION) == mark:
                found.append(process)
    return found

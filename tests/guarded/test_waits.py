"""Real waits in Python, judged by the frame of the training's thread; most without a census, as on macOS."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stallguard.core.events import Heartbeat
from tests import mlx_kernels

from .runs import AT_ONCE, GUARDED, SCRIPTS, SPOILED, Guard, Guarded, stallguard

pytestmark = pytest.mark.live

LOOP = str(SCRIPTS / "waits.py")
NO_CENSUS = "spoil(lambda *words: None)", "stallguard.host.linux/census"
# At this patience a loop of the script's own is deadlocked after 5 s, and an external wait is a stall after 30 s.
SOON, DEADLOCK_DUE = ("--patience", "0.25"), 5.0
LATE = 12.0  # seconds: longer than any deadlock may last, shorter than half of an external wait


def blind(home: Path, *words: str) -> Guarded:
    """Run `stallguard run` with `words` on a system that shows no wait sites of threads."""
    spoil, where = NO_CENSUS
    command = [sys.executable, "-c", SPOILED + spoil, where, "run", "--python", GUARDED, *words]
    environment = {**os.environ, "STALLGUARD_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=400, stdin=subprocess.DEVNULL
    )
    run = (home / "runs" / "latest").resolve()
    found = Guarded(done.returncode, done.stdout, done.stderr.decode(), run)
    assert not any(getattr(getattr(event, "reading", None), "census", None) for event in found.events)
    return found


def stall(run: Guarded) -> dict[str, str]:
    """Return the facts of the only stall."""
    assert len(run.announced("training.stalled")) == 1, run.err
    return run.announced("training.stalled")[0]


def waits(run: Guarded) -> set[tuple[str, int]]:
    """Return every wait that the records showed, with the number of threads that could end it."""
    beats = [event for event in run.events if isinstance(event, Heartbeat)]
    return {(beat.wait, beat.wakers) for beat in beats if beat.wait}


@contextmanager
def late_server(seconds: float) -> Iterator[int]:
    """Serve one byte to the first client after `seconds`; yields the port."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                ended.wait(seconds)
                link.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        ended.set()
        thread.join()


@pytest.mark.parametrize("kind", ["lock", "with", "event", "queue", "join"])
def test_a_deadlock_in_python_is_one_without_a_census_too(tmp_path: Path, kind: str) -> None:
    run = blind(tmp_path, *SOON, "--on-stall", "stop", LOOP, kind)

    facts = stall(run)
    assert "nothing in the process can wake them" in facts["what"]
    assert float(facts["gap"].split()[0]) <= DEADLOCK_DUE + 2
    assert waits(run) == {("lock", 0)}
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"


def test_a_loop_that_sleeps_is_no_deadlock(tmp_path: Path) -> None:
    run = blind(tmp_path, *SOON, LOOP, "sleep", str(LATE))

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    assert run.announced("training.suspected") == []
    assert waits(run) == {("sleep", 0)}


def test_a_loop_that_waits_for_a_thread_that_reads_from_a_slow_socket_is_no_deadlock(tmp_path: Path) -> None:
    with late_server(LATE) as port:
        run = blind(tmp_path, *SOON, LOOP, "feeder", str(port))

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    assert run.announced("training.suspected") == []
    assert waits(run) == {("lock", 1)}


@pytest.mark.tf
def test_a_lock_in_a_step_is_judged_in_seconds_without_a_census(tmp_path: Path) -> None:
    run = blind(tmp_path, *AT_ONCE, str(SCRIPTS / "steps.py"), "lock", str(tmp_path / "memory"))

    assert run.code == 0, run.err
    # 11 on a machine that is not busy (tests/core/detection/test_activity_waits.py); an external wait takes 30.
    assert float(stall(run)["gap"].split()[0]) <= 11.0 + 2.0
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"


@pytest.mark.tf
def test_an_idle_wait_in_a_call_of_the_library_is_named(guard_keras: Guard, tmp_path: Path) -> None:
    run = guard_keras(tmp_path, *AT_ONCE, str(SCRIPTS / "steps.py"), "dequeue", str(tmp_path / "memory"))

    assert run.code == 0, run.err
    stall(run)
    # On a busy machine a slow step shows another wait once.
    beats = Counter(event.wait for event in run.events if isinstance(event, Heartbeat) and event.wait)
    assert beats.most_common(1)[0][0] == "library"
    first = run.actions("incident.diagnosed")[0]["findings"][0]
    assert first["cause"] == "device-wait"
    assert "its thread stands in a call of the training library" in " ".join(first["evidence"])


STOPS_A_THREAD = pytest.mark.skipif(
    os.uname()[::4] != ("Linux", "x86_64"), reason="it stops a thread of MLX by its number in Linux"
)


@pytest.mark.parametrize(
    ("kind", "wait"), [("lock", "lock"), ("loader", "lock"), pytest.param("eval", "device", marks=STOPS_A_THREAD)]
)
def test_a_wait_in_a_loop_of_mlx_is_judged_as_soon_as_in_any_other(
    tmp_path: Path, other_python: Callable[[str], str], kind: str, wait: str
) -> None:
    words = ("--python", other_python("mlx"), *AT_ONCE, str(SCRIPTS / "mlx_steps.py"), kind, str(tmp_path / "memory"))
    run = stallguard(tmp_path, "run", *words, env={"TMPDIR": mlx_kernels.share(tmp_path)})

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    gap = stall(run)["gap"].split()
    assert gap[1:] == ["s"]
    assert float(gap[0]) <= 11.0 + 4.0  # 10 to 13 on two busy cores
    first = run.actions("incident.diagnosed")[0]["findings"][0]["cause"]
    assert first == {"lock": "host-deadlock", "device": "device-wait"}[wait]
    assert (wait, 0) in waits(run)
    named = run.announced("evidence.collected")[0]["line"]
    lines = (SCRIPTS / "mlx_steps.py").read_text().splitlines()
    assert f"named: {kind}" in lines[int(named.partition("mlx_steps.py:")[2].split()[0]) - 1]


def test_a_lock_in_a_loop_of_jax_is_judged_as_soon_as_in_any_other(
    tmp_path: Path, other_python: Callable[[str], str]
) -> None:
    python = other_python("jax")
    if subprocess.run([python, "-c", "import sys; sys.monitoring"], capture_output=True, check=False).returncode:
        pytest.skip("the environment jax has a Python before 3.12, which does not show the calls of jax.jit")
    words = ("--python", python, *AT_ONCE, str(SCRIPTS / "jax_steps.py"), str(tmp_path / "memory"))
    run = stallguard(tmp_path, "run", *words)

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    assert run.announced("run.finished")[0]["batches"] == "161"  # 71 and 90
    gap = stall(run)["gap"].split()
    assert gap[1:] == ["s"]
    assert float(gap[0]) <= 11.0 + 4.0  # 10 to 13 on two busy cores
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"
    assert ("lock", 0) in waits(run)
    named = run.announced("evidence.collected")[0]["line"]
    lines = (SCRIPTS / "jax_steps.py").read_text().splitlines()
    assert "named" in lines[int(named.partition("jax_steps.py:")[2].split()[0]) - 1]


# In the middle of an epoch of 20 and of 10 steps: the first one of an epoch has 20 s.
@pytest.mark.parametrize(
    "words",
    [
        ("torch_steps.py", "70"),
        ("trainer.py", "stall=70", "steps=90", "pause=0.05"),
        ("lightning_fit.py", "stall=405", "epochs=50"),
        ("accelerated.py", "stall=70", "steps=90", "pause=0.05", "every=1000"),
    ],
    ids=["torch", "Trainer", "Lightning", "accelerate"],
)  # fmt: skip
def test_a_lock_in_a_step_of_torch_is_judged_as_soon_as_in_any_other_loop(
    tmp_path: Path, other_python: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    script, *given = words
    monkeypatch.chdir(tmp_path)
    run = stallguard(
        tmp_path, "run", "--python", other_python("hf"), *AT_ONCE, str(SCRIPTS / script), *given,
        env={"TMPDIR": str(tmp_path)},
    )  # fmt: skip

    assert run.code == 0, run.err
    gap = stall(run)["gap"].split()
    assert gap[1:] == ["s"]
    assert float(gap[0]) <= 11.0 + 4.0  # 10 to 13 on two busy cores
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"
    assert script in run.announced("evidence.collected")[0]["line"]


@pytest.mark.parametrize(
    ("kind", "cause", "named"),
    [
        ("stall", "host-deadlock", "language.py"),
        pytest.param("idle", "device-wait", "language.py", marks=STOPS_A_THREAD),
    ],
)
def test_a_wait_in_a_step_of_mlx_lm_is_judged_and_it_goes_on_to_the_same_weights(
    tmp_path: Path, other_python: Callable[[str], str], kind: str, cause: str, named: str
) -> None:
    python, environment = other_python("mlx"), {"TMPDIR": str(tmp_path), "MLX_DISABLE_COMPILE": "1"}
    words = [str(SCRIPTS / "language.py"), "iters=90", "eval=85", "save=85", "pause=0.1"]
    plain, guarded = tmp_path / "plain", tmp_path / "guarded"
    for folder in (plain, guarded):
        folder.mkdir()
    whole = subprocess.run([python, *words], cwd=plain, env={**os.environ, **environment}, capture_output=True,
                           check=True, timeout=300)  # fmt: skip
    kept = ("--set", "checkpoint.every=0s", "--set", "checkpoint.cost=1")
    run = stallguard(tmp_path / "home", "run", "--python", python, *AT_ONCE, *kept, *words, f"{kind}=75",
                     env=environment, cwd=guarded)  # fmt: skip

    assert run.code == 0, run.err
    gap = stall(run)["gap"].split()
    assert gap[1:] == ["s"]
    assert float(gap[0]) <= 11.0 + 4.0, (waits(run), run.err)  # 10 to 13 on two busy cores
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == cause
    assert named in run.announced("evidence.collected")[0]["line"]
    assert "mlx-lm's trainer goes on after iteration 74" in run.err
    assert run.out.splitlines()[-1] == whole.stdout.splitlines()[-1]  # digests of weights, optimizer and generators


# The reports pytorch#144634 and noether#178, on a stand-in for the GPU of a Mac.
@pytest.mark.parametrize("call", ["synchronize", "event", "item", "cpu"])
def test_a_wait_for_the_gpu_of_a_mac_is_named_and_the_loop_goes_on(
    tmp_path: Path, other_python: Callable[[str], str], call: str
) -> None:
    run = tracked(tmp_path, other_python("torch"), "metal_waits.py", call, str(tmp_path / "memory"))

    named = run.announced("evidence.collected")[0]["line"]
    lines = (SCRIPTS / "metal_waits.py").read_text().splitlines()
    assert f"named: {call}" in lines[int(named.partition("metal_waits.py:")[2].split()[0]) - 1]
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "device-wait"
    assert ("device", 0) in waits(run)


# The report pytorch#193520, on a stand-in for LLVM's runtime.
def test_two_runtimes_of_openmp_are_named_and_the_loop_goes_on(
    tmp_path: Path, other_python: Callable[[str], str]
) -> None:
    run = tracked(tmp_path, other_python("torch"), "openmp_waits.py", str(tmp_path))

    first = run.actions("incident.diagnosed")[0]["findings"][0]
    assert first["cause"] == "openmp-clash"
    assert "two OpenMP runtimes are loaded: env/lib/libomp.so and torch/lib/libgomp.so.1" in first["evidence"]
    assert "pytorch/pytorch#193520" in run.err


@contextmanager
def other_rank(home: Path, python: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """Start rank 1 of two, of MLX or torch, with a script and its words; yields it, and the environment of rank 0."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [server.getsockname()[1] for server in (one, two)]
    hosts = home / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in ports]))
    env = {"MLX_HOSTFILE": str(hosts), "MLX_RANK": "0", "TMPDIR": str(home)}
    loopback = "lo" if sys.platform == "linux" else "lo0"
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0]), "GLOO_SOCKET_IFNAME": loopback}
    env |= {"WORLD_SIZE": "2", "RANK": "0"}
    peers = {**os.environ, **env, "MLX_RANK": "1", "RANK": "1"}
    command = [python, str(SCRIPTS / words[0]), *words[1:]]
    with subprocess.Popen(command, env=peers, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as rank:
        try:
            yield rank, env
        finally:
            rank.send_signal(signal.SIGCONT)
            rank.kill()


def stops_after(rank: subprocess.Popen[bytes], steps: int, number: signal.Signals) -> None:
    """Send a signal to a rank once it has trained some steps; from a thread."""
    assert rank.stdout is not None
    for line in rank.stdout:
        if int(line) >= steps:
            rank.send_signal(number)
            return


# The reports mlx#3910 and mlx#4278, with the ring in place of JACCL: the rank that is left keeps a core busy.  One of
# gloo is idle, unless its script polls.
@pytest.mark.parametrize(
    ("environment", "words", "causes"),
    [
        ("mlx", ("ranks.py",), ("nccl",)),
        ("torch", ("torch_ranks.py", "all_reduce"), ("nccl",)),
        ("torch", ("torch_ranks.py", "wait"), ("nccl",)),
        ("torch", ("torch_ranks.py", "asks"), ("nccl", "outside-wait", "busy-loop")),
        ("torch", ("torch_ranks.py", "polls"), ("nccl", "busy-loop")),
    ],
    ids=["ring", "gloo", "gloo in the script", "gloo asked", "gloo polled"],
)
def test_a_rank_whose_peer_does_not_answer_is_judged_and_the_peer_named(
    tmp_path: Path,
    other_python: Callable[[str], str],
    environment: str,
    words: tuple[str, ...],
    causes: tuple[str, ...],
) -> None:
    python = other_python(environment)
    with other_rank(tmp_path, python, *words) as (rank, env):
        threading.Thread(target=stops_after, args=(rank, 150, signal.SIGSTOP)).start()
        short = [word for kind in ("spin", "external") for word in ("--set", f"detector.rows.step.{kind}=10s")]
        given = ("--python", python, *AT_ONCE, *short, "--on-stall", "stop", str(SCRIPTS / words[0]), *words[1:])
        run = stallguard(tmp_path, "run", *given, env=env)

    stall(run)
    found = run.actions("incident.diagnosed")[0]["findings"]
    assert found[0]["cause"] in causes, run.err
    (named,) = [one for one in found if one["cause"] == "nccl"]
    assert any("other processes take part in the training" in one for one in named["evidence"])


@pytest.mark.parametrize(
    ("environment", "words"),
    [("mlx", ("ranks.py",)), ("torch", ("torch_ranks.py", "all_reduce"))],
    ids=["ring", "gloo"],
)
def test_a_rank_that_fails_because_its_peer_is_gone_names_that(
    tmp_path: Path, other_python: Callable[[str], str], environment: str, words: tuple[str, ...]
) -> None:
    python = other_python(environment)
    with other_rank(tmp_path, python, *words) as (rank, env):
        threading.Thread(target=stops_after, args=(rank, 20, signal.SIGKILL)).start()
        given = ("--python", python, "--set", "policy.max_restarts=0", str(SCRIPTS / words[0]), *words[1:])
        run = stallguard(tmp_path, "run", *given, env=env)

    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "nccl", run.err


def tracked(home: Path, python: str, script: str, *given: str) -> Guarded:
    """Run a tracked loop that stalls at its step 45 in the first attempt; its second goes on there."""
    words = ("--python", python, *AT_ONCE, "--checkpoint-every", "0s", "--set", "checkpoint.cost=1")
    run = stallguard(home, "run", *words, str(SCRIPTS / script), *given, env={"TMPDIR": str(home)})
    assert run.code == 0, run.err
    stall(run)
    firsts = [int(line.split()[1]) for line in run.out.decode().splitlines() if line.startswith("first")]
    assert firsts[0] == 0
    assert 40 <= firsts[1] <= 46
    return run

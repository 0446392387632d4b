"""The processes that run cases: one of state_child.py for each core, each fed by a thread."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from .cases import Case
from .judge import Verdict, judged
from .loops import LOOPS
from .script import written
from .things import catalog

ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "scripts" / "benches" / "state_child.py"
_ONE_THREAD = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "TF_NUM_INTRAOP_THREADS",
)  # fmt: skip


def interpreter(backend: str) -> Path:
    """Return the interpreter that has a backend: this one, or that of its environment."""
    name = LOOPS[backend].environment if backend in LOOPS else backend
    place = ROOT / ".venvs" / name / "bin" / "python"
    return place if place.exists() else Path(sys.executable)


def environment(backend: str, more: str = "") -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STALLGUARD_")}
    path = os.pathsep.join(part for part in (more, kept.pop("PYTHONPATH", "")) if part)
    return {
        **kept, **dict.fromkeys(_ONE_THREAD, "1"), **({"PYTHONPATH": path} if path else {}),
        "KERAS_BACKEND": backend, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


class Children:
    """Processes of one backend.  Use as a context manager."""

    def __init__(self, backend: str, processes: int, keep: Path | None = None, cases: Iterable[Case] = ()) -> None:
        """`keep`: where the folders of all cases stay; `cases`: for which alone libraries are imported."""
        self._backend, self._keep = backend, keep
        names = {name for case in cases for name, _ in case.things} or set(catalog())
        self._wanted = sorted({module for name in names for module in catalog()[name].modules()})
        self._compiled = tempfile.TemporaryDirectory(prefix="sg-state-jax-")
        self._children = [self._started() for _ in range(processes)]
        replies = [self._reply(child) for child in self._children]
        self.libraries: list[str] = replies[0]["libraries"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            if child.stdin:
                child.stdin.close()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.wait()
            if child.stdout:
                child.stdout.close()
        self._compiled.cleanup()

    def _started(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [interpreter(self._backend), CHILD], env=environment(self._backend) | self._jax(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        first = LOOPS[self._backend].modules if self._backend in LOOPS else ["keras"]
        keep = str(self._keep) if self._keep else ""
        self._send(child, {"libraries": self._wanted, "keep": keep, "first": first})
        return child

    def _jax(self) -> dict[str, str]:
        """Return the variables that let the attempts share what JAX compiles: half of their time."""
        return {
            "JAX_COMPILATION_CACHE_DIR": self._compiled.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }  # fmt: skip

    def _send(self, child: subprocess.Popen[str], line: dict[str, Any]) -> None:
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        child.stdin.write(json.dumps(line) + "\n")
        child.stdin.flush()

    def _reply(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        line = child.stdout.readline()
        if not line:
            raise OSError(f"the process of backend {self._backend} ended with {child.wait()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def run(self, cases: Iterable[Case], done: Callable[[Verdict, dict[str, Any]], None]) -> None:
        """Run cases, and call `done` for each, in the order of their ends.  Raises what a process raised."""
        waiting = iter(cases)
        lock = threading.Lock()
        errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

        def serve(child: subprocess.Popen[str]) -> None:
            try:
                while errors.empty():
                    with lock:
                        case = next(waiting, None)
                    if case is None:
                        return
                    self._send(child, {
                        "spec": case.spec(), "source": written(case), "kills": case.kills,
                        "batches": case.epochs * case.steps,
                    })  # fmt: skip
                    found = self._reply(child)
                    verdict = judged(found)
                    with lock:
                        done(verdict, found)
            except BaseException as error:  # noqa: BLE001 - it is raised again below
                errors.put(error)

        threads = [threading.Thread(target=serve, args=(child,), daemon=True) for child in self._children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not errors.empty():
            raise errors.get()

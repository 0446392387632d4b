"""The parts `sick` and `healthy`: cases are started several at a time on each GPU, judged, and put into a table."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_zoo.cases import Case, can_be_on_cpu, ordered, plan, python_of
from gpu_zoo.judge import ACTED, EVIDENCE, NOTICED, Seen, judged
from gpu_zoo.options import Options, Part, Result, keep
from harness.children import BENCHES, ended, environment, started
from harness.results import Goal, number, quantile, table
from stallguard.storage import journal
from stallguard.storage.paths import RunDir

CHILD = BENCHES / "gpu_child.py"
PLAIN = 180.0  # seconds that a run without guard and fault may take
ENDING = 25.0  # seconds that a guard gets to end its training, for one that takes too long
NEIGHBOURS = {"shared": 8, "holds": 1}  # other programs on the GPU
LARGEST = 4 << 20  # bytes of a file of a wrong run that is kept
OPTIONS = ("--checkpoint-every", "1s", "--checkpoint-cost", "1", "--set", "notify.desktop=off")
Plain = dict[str, Any]


def variables(case: Case, gpu: int | None) -> dict[str, str]:
    """Return the environment of a training: one GPU, a part of its memory, one thread, and equal results."""
    return {
        "CUDA_VISIBLE_DEVICES": "" if gpu is None else str(gpu), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "KERAS_BACKEND": "jax" if "jax" in case.framework else "torch", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false", "JAX_PLATFORMS": "cpu" if gpu is None else "cuda,cpu",
        **({} if gpu is None else {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}),
    }  # fmt: skip


def plainly(case: Case, gpu: int | None, seed: int) -> Plain:
    """Train without guard and without fault; return what was learned, or an `error`."""
    with tempfile.TemporaryDirectory(prefix="sg-gpu-") as place:
        words = json.dumps(plan(case, seed, gpu=gpu is not None, plain=True))
        try:
            done = subprocess.run(
                [str(python_of(case.framework)), str(CHILD), words], cwd=place, capture_output=True, text=True,
                env=environment(None, **variables(case, gpu)), check=False, timeout=PLAIN,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"no end within {PLAIN:.0f} s"}
        found: Plain = json.loads(text) if (text := _text(Path(place) / "trained.json")) else {}
        return found or {"error": done.stderr[-1500:]}


def tried(case: Case, repetition: int, gpu: int | None, options: Options, plain: Future[Plain]) -> Result:
    """Run a case under guard; return its row."""
    name = f"{case.name}-{options.seed}-{repetition}"
    with tempfile.TemporaryDirectory(prefix="sg-gpu-", ignore_cleanup_errors=True) as folder:
        place, python = Path(folder), str(python_of(case.framework))
        words = plan(case, options.seed + repetition, gpu=gpu is not None)
        command = [sys.executable, "-m", "stallguard", "run", "--python", python, *OPTIONS, "--", str(CHILD)]
        environment_of = variables(case, gpu)
        with _neighbours(case, words, place, environment_of), started(
            [*command, json.dumps(words)], place / "home", place, place / "printed", **environment_of
        ) as guard:  # fmt: skip
            code = ended(guard, max(1.0, min(options.left - ENDING, 2 * case.lasts)), ENDING)
        directory = RunDir((place / "home" / "runs" / "latest").resolve())
        lines = [json.loads(entry.raw) for entry in journal.read(directory.journal)]
        fault, trained = (json.loads(_text(place / file) or "null") for file in ("fault.json", "trained.json"))
        seen = Seen(code, lines, fault, trained, gpu is not None)
        _end_left_over(lines)
        learned = plain.result()
        result = judged(case, seen, learned) | {"seed": options.seed, "repetition": repetition, "gpu": gpu}
        if error := learned.get("error"):
            result["wrong"].append(f"the plain run failed: {error}")
        if result["wrong"]:
            result["printed"] = _text(place / "printed")[-3000:]
            _keep_run(directory.path, place / "printed", options.out / "wrong" / f"{name}.tgz")
        _keep_journal(lines, options.out / "journals" / f"{name}.jsonl.gz")
        return result


@contextlib.contextmanager
def _neighbours(case: Case, words: dict[str, object], place: Path, variables: dict[str, str]) -> Iterator[None]:
    """Have the other programs of a case run on its GPU; end them."""
    library = "jax" if case.framework.endswith("jax") else "torch"
    surrounding = json.dumps({**words, "framework": "surround", "library": library})
    more = {**variables, "XLA_PYTHON_CLIENT_MEM_FRACTION": ".08"}
    with contextlib.ExitStack() as stack:
        for _ in range(NEIGHBOURS.get(case.fault, 0)):
            command = [str(python_of(case.framework)), str(CHILD), surrounding]
            other = stack.enter_context(started(command, place, None, None, **more))
            stack.callback(other.kill)
        yield


def _end_left_over(lines: Sequence[dict[str, Any]]) -> None:
    """Kill the trainings of a run that had to be ended itself."""
    running = {line["pid"] for line in lines if line["event"] == "attempt.started"}
    for pid in running:
        with contextlib.suppress(OSError):
            if str(CHILD).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _keep_journal(lines: Sequence[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _keep_run(run: Path, printed: Path, path: Path) -> None:
    """Keep the directory of a run that was judged wrong, without large files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = [one for one in (*run.rglob("*"), printed) if one.is_file() and one.stat().st_size < LARGEST]
    with tarfile.open(path, "w:gz") as tar:
        for one in small:
            tar.add(one, one.relative_to(run) if one.is_relative_to(run) else one.name)


def run(part: str, options: Options) -> list[Result]:
    cases = ordered(part, options.cases, options.seed, options.repeat)
    gpus: tuple[int | None, ...] = options.gpus or (None,)
    numbered, possible, results = list(enumerate(cases)), [], []
    distinct = max(1, len(cases) // max(1, options.repeat))
    for index, case in numbered:
        why = "" if python_of(case.framework) else f"{case.framework} is not installed"
        why = why or ("" if options.gpus or can_be_on_cpu(case) else "it needs a GPU")
        row = {"part": part, "case": case.name, "fault": case.fault, "framework": case.framework}
        if why:
            results.append(keep(options, row | {"skipped": why}))
        else:
            possible.append((case, index // distinct))
    if part == "healthy" and not options.cases:
        why = "low clocks need another setting of the card, which is not ours to make"
        results.append(keep(options, {"part": part, "case": "clocks", "skipped": why}))
    with ThreadPoolExecutor(max(1, len(gpus)) * 3) as pool:
        # A plain run for each kind of training: that of another fault learns the same.
        kinds = {case.framework: case for case, _ in possible} if part == "sick" else {}
        plain = {
            framework: pool.submit(plainly, case._replace(epochs=3), gpus[index % len(gpus)], options.seed)
            for index, (framework, case) in enumerate(kinds.items())
        }  # fmt: skip
        nothing: Future[Plain] = Future()
        nothing.set_result({})
        for alone, each in ((False, options.each), (True, 1)):
            queue = deque(one for one in possible if one[0].alone == alone)
            results += _played(queue, gpus, each, options, plain, nothing)
    return results


def _played(
    queue: deque[tuple[Case, int]], gpus: Sequence[int | None], each: int, options: Options,
    plain: dict[str, Future[Plain]], nothing: Future[Plain],
) -> list[Result]:  # fmt: skip
    """Run the cases of a queue, `each` at a time on each GPU."""
    results: list[Result] = []
    lock = threading.Lock()

    def work(gpu: int | None) -> None:
        while True:
            with lock:
                if not queue:
                    return
                case, repetition = queue.popleft()
            row: Result = {"part": case.part, "case": case.name, "fault": case.fault, "framework": case.framework}
            if case.lasts > options.left - ENDING:
                row["skipped"] = "no time was left"
            else:
                try:
                    row = tried(case, repetition, gpu, options, plain.get(case.framework, nothing))
                except Exception as error:  # noqa: BLE001 - one case must not end the others
                    row |= {"wrong": [f"the bench failed: {type(error).__name__}: {error}"]}
                print(f"{options.left:5.0f} s left  {case.name}: {'; '.join(row['wrong']) or 'right'}", flush=True)
            results.append(keep(options, row))

    with ThreadPoolExecutor(each * len(gpus)) as pool:
        for one in [pool.submit(work, gpu) for _ in range(each) for gpu in gpus]:
            one.result()
    return results


# ---- what is shown ------------------------------------------------------------------------------------------------


def shown(part: str, results: Sequence[Result]) -> str:
    done = sorted((row for row in results if "skipped" not in row), key=lambda row: row["case"])
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if part == "sick":
        head = ("case", "noticed", "evidence", "acted", "cause", "line", "remedy", "end", "verdict")
        rows = [
            (row["case"], *(_figure(row.get(name)) for name in ("noticed", "evidence", "acted")),
             row.get("cause", ""), Path(row.get("where", "").partition(" in ")[0]).name, row.get("remedy", ""),
             row.get("end", ""), _verdict(row))
            for row in done
        ]  # fmt: skip
    else:
        head = ("case", "alarms", "suspicions", "attempts", "code", "verdict")
        names = ("alarms", "suspicions", "attempts", "code")
        rows = [(row["case"], *(str(row.get(name, "")) for name in names), _verdict(row)) for row in done]
    left_out = sorted({f"not run: {row['case']}: {row['skipped']}" for row in results if "skipped" in row})
    return "\n".join([table(head, rows) if rows else "", *left_out])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _verdict(row: Result) -> str:
    return f"WRONG: {'; '.join(row['wrong'])}".splitlines()[0][:200] if row["wrong"] else "right"


def goals(part: str, results: Sequence[Result]) -> list[Goal]:
    done = [row for row in results if "skipped" not in row]
    wrong = float(sum(bool(row["wrong"]) for row in done))
    if part == "healthy":
        alarms = float(sum(row.get("alarms", 0) for row in done))
        suspicions = sum(row.get("suspicions", 0) for row in done)
        print(f"{len(done)} healthy runs; {number(float(suspicions))} suspicions that were withdrawn")
        return [Goal("healthy alarms", alarms, 0), Goal("wrong healthy runs", wrong, 0)]
    most = {"noticed": NOTICED, "evidence": EVIDENCE, "acted": ACTED}
    print(f"{len(done)} sick runs, {len({row['case'] for row in done})} cases")
    found = {
        name: [row[name] for row in done if row.get(name) is not None and (name, row["fault"]) != ("acted", "stopped")]
        for name in most
    }  # fmt: skip
    limits = [
        Goal(f"{name}, the slowest", quantile(values, 1.0), most[name]) for name, values in found.items() if values
    ]
    return [Goal("wrong", wrong, 0), *limits]


PARTS = {
    part: Part(functools.partial(run, part), functools.partial(shown, part), functools.partial(goals, part))
    for part in ("sick", "healthy")
}  # fmt: skip

"""Where the children of `cost`, `save` and `resume` run: the GPU, its share of the cores, and their environment."""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from gpu_zoo.options import Options, Result, keep
from harness.children import ROOT

# The packages of each kind; those divided by | are alternatives.
NEEDED = {
    "keras-torch": ("keras", "torch"), "keras-jax": ("keras", "jax"), "torch": ("torch",), "jax": ("jax",),
    "trainer": ("torch", "transformers", "accelerate"), "lightning": ("torch", "lightning|pytorch_lightning"),
}  # fmt: skip


class Job(NamedTuple):
    """A piece of a part that has one GPU, or a share of it, for itself."""

    part: str
    kind: str
    number: int = 0


def lacking(kind: str) -> str:
    """Return why trainings of a kind cannot run here, "" if they can."""
    missing = [one for one in NEEDED[kind] if not any(find_spec(name) for name in one.split("|"))]
    return f"not installed: {', '.join(missing)}" if missing else ""


def variables(kind: str, gpu: int | None) -> dict[str, str]:
    """Return the variables of a child of that kind.  `gpu`: None for the CPU."""
    # The launcher of this bench can have packages on PYTHONPATH, which the children need as well.
    paths = dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "KERAS_BACKEND": kind.partition("-")[2] or "torch",
        "CUDA_VISIBLE_DEVICES": "" if gpu is None else str(gpu),
        "JAX_PLATFORMS": "cpu" if gpu is None else "cuda,cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # else the first process takes three quarters of the GPU's memory
        "GPU_CHILD_DEVICE": "cpu" if gpu is None else "cuda",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TOKENIZERS_PARALLELISM": "false",
    }


def chosen(
    options: Options, part: str, kinds: Sequence[str], names: Sequence[str] = ("",)
) -> tuple[list[str], list[Result]]:
    """Return the kinds that are wanted and can run here, and a result, which is kept, for each that cannot.

    `names`: what follows a kind in the names of its cases; a kind is wanted if one of them is.
    """
    wanted = [kind for kind in kinds if any(re.search(options.cases, f"{kind}{name}") for name in names)]
    skipped = [{"part": part, "case": kind, "skipped": why} for kind in wanted if (why := lacking(kind))]
    return [kind for kind in wanted if not lacking(kind)], [keep(options, one) for one in skipped]


def spread(
    options: Options, jobs: Sequence[Job], work: Callable[[Job, int | None], list[Result]], each: int = 1
) -> list[Result]:
    """Do the jobs in their order, `each` at a time on a GPU, which has its own share of the cores; keep the results.

    A job that raises has a result "failed", which says why.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    places = options.gpus or (None,)
    results: list[Result] = []

    def follow(number: int) -> None:
        _stay_on_cores(number, len(places))
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                found = work(job, places[number])
            except Exception as error:  # noqa: BLE001 - a case that cannot be played must not end the others
                found = [{"part": job.part, "case": job.kind, "failed": f"{type(error).__name__}: {error}"}]
            results.extend(keep(options, result) for result in found)

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(len(places)) for _ in range(each)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _stay_on_cores(number: int, count: int) -> None:
    """Give this thread, and so the children that it starts, part `number` of `count` of the cores."""
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        share = len(cores) // count
        if share:
            os.sched_setaffinity(0, cores[number * share : (number + 1) * share])

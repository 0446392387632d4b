"""Runs one cell for real, and compares what stallguard does and says with the documents, and with what else it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from chaos_faults.stage import Broken, Stage, expect, until

from .cells import FITS, RESUMED, ROOT, STALLS, Cell, parsed, python_of
from .expected import HANGS_IN, Expected, crashes, expected, is_converted, is_trained

BATCHES, EPOCHS = 12, 3  # of an epoch of the child; of a training
CHILD = ROOT / "scripts/benches/matrix_child.py"
LONGEST = 400.0  # seconds a cell: a loop that comes back twice is judged after 8, 40 and 120 s
# Seconds until a stall is judged, in every phase: the times of promises.TIMES, shortened so that a cell takes seconds.
JUDGED = {"deadlock": 4.0, "external": 10.0, "spin": 8.0, "working": 120.0}
BEFORE = ("import", "start", "tracing", "first")  # places before the first batch has ended
SLOW_IMPORT = 25.0  # seconds
# What is announced of the beginning of an attempt: from a checkpoint, or without one (the first has no reason).
GOES_ON = ("attempt.resumed", "attempt.inexact")
FROM_SCRATCH = ("attempt.from_scratch", "attempt.not_resumed")
COMES_BACK = 5.0
MOST_HEALTH = 8.0
LATE = 12.0  # seconds by which a busy machine can be late
# In the sentence on a resume: Trainer, Lightning and mlx-lm say the step, others the epoch and the batch, from 1.
_STEP, _EPOCH = (
    re.compile(r"goes on (?:from step|after iteration) (\d+)"),
    re.compile(r"epoch (\d+)(?:\D+batch (\d+))?"),
)
_ANEW = re.compile("starts over|begins at ")
UNSAVED = 1.0  # seconds after which a loop is unsaved: 40, shortened so that the loops of the cells train as long
STALLGUARD = f"""
import sys
import stallguard.core.advisories as advisories
advisories.NEVER_SAVED = {UNSAVED}
from stallguard.cli import main
main()
"""
# A system that shows no wait sites of threads, as macOS.
NO_CENSUS = """
import stallguard.host.linux as linux
linux.census = lambda *words: None
"""


class Beginning(NamedTuple):
    """Of an attempt that trained a batch: what is announced of it, and its first batch, with the epoch, both from 0."""

    announced: list[tuple[str, str]]  # (message, text)
    first: tuple[int, int] | None
    is_resumed: bool  # in the report


class Seen(NamedTuple):
    """What a run that is over left and says."""

    code: int
    err: str
    outcome: dict[str, Any]
    factors: tuple[int, ...]
    gaps: tuple[float, ...]  # seconds without progress when a stall was announced
    causes: tuple[str, ...]  # what was diagnosed first, of each stall and end
    crowded: float = 1.0  # processes that want a core, for each core


def options(cell: Cell, known: frozenset[str]) -> list[str]:
    # With half the patience twice the time is the same.
    twice = 2 if cell.setting == "patience" else 1
    # On a crowded machine an interpreter takes longer than that to end, so only cells at the exit shorten its times.
    rows = [name for name in sorted(known) if name.startswith("detector.rows.")]
    rows = [name for name in rows if cell.where == "exit" or not name.startswith("detector.rows.exit.")]
    times = {
        name: f"{JUDGED[kind] * twice:.0f}s" for name in rows
        if (kind := name.rpartition(".")[2].removeprefix("prior_")) in JUDGED
    }  # fmt: skip
    fixed = {
        "detector.one_place": f"{8 * twice}s", "detector.act_after": f"{twice}s", "detector.learning": f"{4 * twice}s",
        "detector.stopped": f"{5 * twice}s",
        "notify.desktop": "off", "policy.backoff": "0s", "stop.grace": "3s",
    }  # fmt: skip
    words = [word for name, value in (times | fixed).items() for word in ("--set", f"{name}={value}")]
    words += ["--checkpoint-every", "1s", "--checkpoint-cost", "1"] if cell.checkpoints == "on" else ["--no-checkpoint"]
    order = {"halve": ["--on-stall", "halve"], "restart": ["--on-stall", "restart"], "observe": ["--observe"],
             "patience": ["--patience", "0.5"], "stop": ["--on-stall", "stop"]}  # fmt: skip
    return words + order.get(cell.setting, [])


def plan(cell: Cell, place: Path) -> str:
    """Return the argument of the child.  `place`: where it keeps how often it happened."""
    facts = {"loop": cell.kind, "what": cell.what, "where": cell.where, "again": cell.again, "output": cell.output}
    return json.dumps(facts | {"folder": str(place)})


def environment(cell: Cell) -> dict[str, str]:
    backend = {"keras-jax": "jax", "keras-torch": "torch"}.get(cell.loop, "tensorflow")
    return {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}


def found_by(cell: Cell, python: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the interpreter of a cell, and the variables by which it finds its library.

    "pythonpath": an interpreter without packages, and those of the environment on PYTHONPATH; "clone": the library is
    a directory of the user's, as a clone that is worked on.
    """
    if cell.library == "installed":
        return python, {}
    packages = next(iter((python.parent.parent / "lib").glob("python3.*/site-packages")))
    if cell.library == "pythonpath":
        return python.resolve(), {"PYTHONPATH": str(packages)}
    own = {
        "torch": "torch", "trainer": "transformers", "lightning": "lightning", "mlx": "mlx", "mlx-lm": "mlx_lm",
        "accelerate": "accelerate", "jax": "optax",
    }  # fmt: skip
    name = own.get(cell.kind.removeprefix("track-").removeprefix("mean-"), "keras")
    place = folder / f"clone-of-{name}"
    place.mkdir()
    (place / name).symlink_to(packages / name)
    return python, {"PYTHONPATH": str(place)}


def command(cell: Cell, plan: str, python: Path) -> list[str]:
    child = [str(python), str(CHILD), plan]
    if cell.tree == "shell":
        return ["--", "sh", "-c", 'for number in 1; do "$@" || exit $?; done', "sh", *child]
    if cell.tree == "launcher":
        code = "import subprocess as s, sys; code = s.call(sys.argv[1:]); sys.exit(code if code >= 0 else 128 - code)"
        return ["--", str(python), "-c", code, *child]
    return ["--python", str(python), "--", *child[1:]]


def tried(cell: Cell, folder: Path, result_of: Callable[[str], float], known: frozenset[str]) -> list[str]:
    """Run the cell in `folder`; return what is wrong, nothing if all is as promised."""
    try:
        with Stage(folder) as stage:
            seen = _run(cell, stage, expected(cell), known)
            # Each gap is diagnosed anew: the remedy of any of the causes can be the one that is taken to its end.
            each = (_of_promise(cell, expected(cell, named), seen) for named in seen.causes or ("",))
            wrong = [
                *min(each, key=len),
                *_of_words(seen, words := said(stage)),
                *_of_times(cell, stage, seen, words["report"]),
                *_of_beginnings(cell, beginnings(stage, words["report"])),
                *first_minute(cell, stage.events("checkpoint.failed")),
                *(_of_result(stage, result_of(cell.loop)) if seen.code == 0 and is_trained(cell) else ()),
                *(_of_lines(stage) if seen.code == 0 and cell.kind in FITS and cell.checkpoints == "on" else ()),
            ]
            own = ("__autograph_", "torchinductor_")  # of the libraries
            wrong += [f"left behind: {one}" for one in stage.left_over() if not any(name in one for name in own)]
    except Broken as broken:
        return [str(broken)]
    return wrong


def _run(cell: Cell, stage: Stage, promised: Expected, known: frozenset[str]) -> Seen:
    place = stage.folder / "cell"
    place.mkdir()
    python = python_of(cell.loop)
    assert python is not None  # noqa: S101 - cells.covering takes none of another
    python, finds = found_by(cell, python, stage.folder)
    words = command(cell, plan(cell, place), python)
    code = NO_CENSUS * (cell.census == "off") + STALLGUARD
    live = stage.start(
        [sys.executable, "-P", "-c", code, "run", *options(cell, known), *words], env=environment(cell) | finds
    )
    if promised.is_ended:
        until(lambda: live.process.poll() is not None or "stallguard: why: " in live.err.read_text(errors="replace"),
              "a stall with its cause", LONGEST)  # fmt: skip
        live.signal(signal.SIGTERM)
    ended = live.ended(LONGEST)
    expect((stage.home / "runs" / "latest").exists(), f"no run began: {ended.err[-600:]}")
    starts, stalls = stage.events("attempt.start_requested"), stage.events("training.stalled")
    found = [line["findings"][0]["cause"] for line in stage.events("incident.diagnosed") if line.get("findings")]
    outcome = json.loads(stage.run().path.joinpath("outcome.json").read_text("utf-8"))
    gaps = tuple(_seconds(line["facts"]["gap"]) for line in stalls)
    factors = tuple(one.get("factor", 1) for one in starts)
    crowded = os.getloadavg()[0] / (os.cpu_count() or 1)
    return Seen(ended.code, ended.err, outcome, factors, gaps, tuple(found), crowded)


def _seconds(words: str) -> float:
    parts = words.split()
    return sum(float(number) * {"s": 1, "min": 60}[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True))


def _of_promise(cell: Cell, promised: Expected, seen: Seen) -> list[str]:
    wrong = []
    if seen.code not in promised.codes:
        wrong.append(f"exit code {seen.code}, not {' or '.join(map(str, promised.codes))}")
    least = promised.steps
    if seen.factors[: len(least)] != least or (len(seen.factors) > len(least) and not promised.free):
        wrong.append(f"attempts {seen.factors}, not {least}{' and more' if promised.free else ''}")
    if not promised.stalls[0] <= len(seen.gaps) <= promised.stalls[1]:
        wrong.append(f"{len(seen.gaps)} stalls, not {promised.stalls[0]} to {promised.stalls[1]}")
    if promised.causes and (not seen.causes or seen.causes[0] not in promised.causes):
        wrong.append(f"causes {seen.causes}, not {promised.causes}")
    early = JUDGED["deadlock"] - 0.5  # a local wait has 0.4 of the time for others: as long
    # docs/configuration.md, detector.most_health: a machine that does other work has more time.
    late = JUDGED["spin"] * min(MOST_HEALTH, max(1.0, seen.crowded)) + LATE
    if cell.where in BEFORE:  # counted from the process' begin, with the time in which it imported
        late += SLOW_IMPORT
    for gap in seen.gaps:
        wrong += [] if early <= gap <= late else [f"judged after {gap} s, not {early} to {late:.0f} s"]
        if cell.what in ("spin", "native-spin", "interpreter"):
            # docs/detection.md: a loop outside of a step that comes back has up to five times as long.
            late = max(late, COMES_BACK * gap * min(MOST_HEALTH, max(1.0, seen.crowded)) + LATE)
    if "itself failed" in seen.err:
        wrong.append("stallguard itself failed")
    # JAX writes the whole stack into the text of an error of a function that it calls.
    if "stallguard/probe/" in seen.err and not (cell.loop == "keras-jax" and cell.where in ("first", "step")):
        wrong.append("the probe's own frames are in the errors")
    hangs = re.findall(r"it hangs at \S*matrix_\w+\.py:\d+ in (\w+)", seen.err)
    if cell.what in HANGS_IN and not is_converted(cell) and hangs != [HANGS_IN[cell.what]] * len(seen.gaps):
        wrong.append(f"it hangs in {hangs}, not {HANGS_IN[cell.what]}, {len(seen.gaps)} times")
    return wrong


def said(stage: Stage) -> dict[str, Any]:
    run = stage.run().id
    verbs = (("ls",), ("status", run), ("report", run), ("morning",))
    return {verb: json.loads(stage.verb(verb, *more, "--json").out) for verb, *more in verbs}


def _of_words(seen: Seen, words: dict[str, Any]) -> list[str]:
    outcome, report = seen.outcome, words["report"]
    listed, summary = words["ls"]["runs"][-1], words["morning"]["runs"][-1]
    counts = {
        "exit code": {outcome["exit_code"], listed["code"], seen.code},
        "attempts": {outcome["attempts"], listed["attempts"], report["totals"]["attempts"], len(seen.factors),
                     summary.get("restarts", 0) + 1},
        "batches": {outcome["batches"], listed["batches"], report["totals"]["batches"],
                    summary.get("batches", 0)},
        "crashes": {outcome["crashes"], listed["crashes"], report["totals"]["crashes"]},
        "stalls": {report["totals"]["stalls"], summary.get("stalls", 0), len(seen.gaps)},
        "state": {listed["state"], words["status"]["state"], report["state"]},
    }  # fmt: skip
    wrong = [f"{name} differ: {sorted(map(str, values))}" for name, values in counts.items() if len(values) > 1]
    if abs((outcome.get("effective") or 0.0) - (summary.get("effective") or 0.0)) > 0.01:
        wrong.append(f"effective differs: {outcome.get('effective')}, {summary.get('effective')}")
    if words["status"]["outcome"] != outcome:
        wrong.append("status shows another outcome")
    last = [line for line in seen.err.splitlines() if line.startswith("stallguard: ")][-2:]
    for word, number in (("stall", len(seen.gaps)), ("crash", outcome["crashes"])):
        shown = f"{number} {word}{'' if number == 1 else 'es' if word == 'crash' else 's'}"
        if number and not any(shown in line for line in last):
            wrong.append(f"the last line does not say {shown!r}: {last}")
    return wrong


def _of_times(cell: Cell, stage: Stage, seen: Seen, report: dict[str, Any]) -> list[str]:
    """Compare the ledger with the plan: what hung counts as stalled, and as nothing else."""
    spent = seen.outcome["spent"]
    wrong = []
    whole = sum(value for value in spent.values())
    if abs(whole - seen.outcome["duration_seconds"]) > 0.1:
        wrong.append(f"the ledger has {whole:.1f} s of {seen.outcome['duration_seconds']:.1f} s")
    began = sorted(float(path.read_text()) for path in (stage.folder / "cell").glob("happened-*"))
    hung = _hung(began, report) if cell.what in STALLS and seen.gaps else 0.0
    lost = sum(spent[name] for name in ("stalled", "suspected", "collecting_evidence", "ending", "backoff"))
    # docs/overnight.md: a stall of a process without progress counts from its start, with what it imported.
    more = SLOW_IMPORT if cell.where in BEFORE else 4.0
    if not hung - 3.0 <= lost <= hung + 6.0 + more * len(seen.factors):
        wrong.append(f"{hung:.1f} s hung, {lost:.1f} s are in the ledger as stalled, ending or evidence")
    trains = spent["training"] + spent["input_wait"] + spent["validation"] + spent["checkpoint"] + spent["script"]
    if hung and trains > whole - hung + 3.0:
        wrong.append(f"{trains:.1f} s of {whole:.1f} s count as training although {hung:.1f} s hung")
    counted = crashes(cell, len(began), len(seen.factors) - (seen.code == 0))
    if seen.outcome["crashes"] not in counted:
        wrong.append(f"{seen.outcome['crashes']} crashes were counted, not {counted[0]}")
    slow = report["bottlenecks"]
    if cell.what in STALLS and any("hang" in json.dumps(one) or _share(one) > 0.5 for one in slow):
        wrong.append(f"a stall is shown as slowness: {json.dumps(slow)[:200]}")
    return wrong


def beginnings(stage: Stage, report: dict[str, Any]) -> dict[int, Beginning]:
    """Return how each attempt but the first begins, if it trained a batch."""
    trained = {line["attempt"] for line in stage.events("probe.heartbeat") if line.get("beats")}
    first = sorted(json.loads(path.read_text()) for path in (stage.folder / "cell").glob("first-*"))
    found = {}
    for row in report["attempts"]:
        if row["number"] > 1 and row["number"] in trained:
            at = [(epoch, batch) for moment, epoch, batch in first if row["began"] <= moment <= row["ended"]]
            found[row["number"]] = Beginning([], at[0] if at else None, row.get("resumed", False))
    for name in (*GOES_ON, *FROM_SCRATCH):
        for line in stage.events(name):
            if line["attempt"] in found:
                found[line["attempt"]].announced.append((name, line["message"]))
    return found


def place_said(text: str) -> tuple[int, int] | None:
    """Return the epoch and the batch, from 0, that a sentence on a resume has next; None if it names none."""
    if _ANEW.search(text):
        return None
    if step := _STEP.search(text):
        return divmod(int(step[1]), BATCHES)
    epoch = _EPOCH.search(text)
    return (int(epoch[1]) - 1, int(epoch[2] or 0)) if epoch else None


def _of_beginnings(cell: Cell, found: dict[int, Beginning]) -> list[str]:
    """Compare with docs/resuming.md: an attempt says once how it begins; a fit that was saved is not trained anew.

    A training from scratch comes to the same result, so the result does not show that no checkpoint was ever made.
    """
    # What happens in the second epoch happens after the checkpoint that follows the first.
    may = cell.checkpoints == "on" and cell.kind in RESUMED
    is_saved = may and cell.where not in BEFORE
    earliest = (0, 1) if cell.loop == "mlx-lm" else (1, 0)  # its trainer has no epochs: a save is due by time alone
    wrong = []
    for attempt, began in found.items():
        # A further sentence names what of the script's code is not as it was, and no place.
        placed = [one for one in began.announced if place_said(one[1]) is not None or _ANEW.search(one[1])]
        announced = placed or began.announced
        if len(announced) != 1:
            wrong.append(f"attempt {attempt} says {len(announced)} times how it begins: {began.announced}")
            continue
        (message, text), at = announced[0], began.first or (0, 0)
        said = (place_said(text) if message in GOES_ON else None) or (0, 0)
        if at not in (said, (said[0] + said[1] // BATCHES, said[1] % BATCHES)):  # the end of an epoch is a beginning
            wrong.append(f"attempt {attempt} begins with epoch and batch {at}, and says: {text}")
        elif is_saved and at < earliest:
            wrong.append(f"attempt {attempt} starts from scratch although a checkpoint was due: {text}")
        elif not may and (message in GOES_ON or at > (0, 0)):
            wrong.append(f"attempt {attempt} resumes although no checkpoints are made: {text}")
        if began.is_resumed != (at > (0, 0)):
            wrong.append(f"attempt {attempt} begins at {at}, and the report says resumed: {began.is_resumed}")
    return wrong


def first_minute(cell: Cell, failed: list[dict[str, Any]]) -> list[str]:
    """Compare with docs/resuming.md: a loop that is never saved is said to be, while it trains; no other one is.

    It is sure to train so long if it stalls.
    """
    said = [line for line in failed if "in a loop of its own" in line["message"]]
    if cell.kind in RESUMED or cell.checkpoints == "off":
        return [f"it is said to be in no checkpoint: {line['message']}" for line in said]
    due = cell.what in STALLS and cell.where not in (*BEFORE, "exit")
    return ["nothing says that this loop is in no checkpoint"] if due and not said else []


def _share(bottleneck: dict[str, Any]) -> float:
    found = bottleneck.get("share")
    return float(found) if isinstance(found, int | float) else 0.0


def _hung(began: list[float], report: dict[str, Any]) -> float:
    """Return the seconds from each time it happened (seconds since the epoch) to the end of that attempt."""
    total = 0.0
    for attempt in report["attempts"]:
        inside = [at for at in began if attempt["began"] <= at <= attempt["ended"]]
        total += attempt["ended"] - min(inside) if inside else 0.0
    return total


def _of_result(stage: Stage, undisturbed: float) -> list[str]:
    """Compare what was trained with the undisturbed run: docs/resuming.md; slices add up in another order."""
    place = stage.folder / "cell" / "trained"
    if not place.exists():
        return ["it did not come to its end"]
    found = float(place.read_text())
    return [] if abs(found - undisturbed) <= 1e-4 * abs(undisturbed) else [f"trained {found}, not {undisturbed}"]


def _of_lines(stage: Stage) -> list[str]:
    """Compare with docs/resuming.md, "Files": a callback of the fit appended one line for each batch."""
    found = (stage.folder / "cell" / "lines").read_text().splitlines()
    wanted = [f"{epoch} {batch}" for epoch in range(EPOCHS) for batch in range(BATCHES)]
    odd = [f"{line}, {found.count(line)} times" for line in sorted({*found, *wanted}) if found.count(line) != 1]
    return [f"the callback's file has {odd[:5]}"] if odd else []


def undisturbed(loop: str, folder: Path) -> float:
    """Train without stallguard, and return the result.  Raises Broken if that fails."""
    folder.mkdir(parents=True)
    cell = parsed(f"loop={loop},what=nothing,where=step")
    done = subprocess.run(
        [str(python_of(loop)), str(CHILD), plan(cell, folder)], capture_output=True, text=True, check=False,
        env={**os.environ, **environment(cell)},
    )  # fmt: skip
    expect(done.returncode == 0, f"{loop} does not train without stallguard: {done.stderr[-500:]}")
    return float((folder / "trained").read_text())

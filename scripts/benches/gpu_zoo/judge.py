"""Judges a run by its journal: when what happened was seen, what was said of it, what was done, and how it ended."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpu_zoo.cases import ON_CPU, Case
from gpu_zoo.options import Result
from harness.children import BENCHES

NOTICED, EVIDENCE, ACTED = 30.0, 60.0, 120.0  # seconds at most
SAID = 60.0  # seconds of a loop that nothing counts, after which that must be said, at most
STARTED = 0.5  # seconds by which a clock that is read in another process can differ
SOURCES = (BENCHES / "gpu_child.py", BENCHES / "gpu_zoo" / "faults_child.py")
Line = dict[str, Any]  # of a journal


class Seen(NamedTuple):
    """What a run left.  `code`: None if the bench had to end it."""

    code: int | None
    lines: Sequence[Line]
    fault: dict[str, Any] | None  # fault.json
    trained: dict[str, Any] | None  # trained.json
    gpu: bool = True


class Times(NamedTuple):
    """Seconds from the fault on; None: it did not happen."""

    noticed: float | None
    evidence: float | None
    acted: float | None


def times(lines: Iterable[Line], fault: float) -> Times:
    """Return when the first attempt that the fault is in was suspected for good, explained and ended."""
    noticed = evidence = acted = None
    for line in lines:
        at, event = line["clock"] - fault, line["event"]
        if at < -STARTED or acted is not None:
            continue
        if event in ("training.cleared", "training.recovered") and evidence is None:
            noticed = None
        elif event in ("training.suspected", "training.stalled"):
            noticed = at if noticed is None else noticed
        elif event == "evidence.ready" and evidence is None and line.get("incident"):
            evidence = at
        elif event in ("attempt.stopping", "attempt.exited"):
            acted = at
            noticed = at if noticed is None and event == "attempt.exited" else noticed
    return Times(noticed, evidence, acted)


def diagnoses(lines: Iterable[Line]) -> list[Line]:
    """Return the explanations of incidents and ends, not those of what is only announced."""
    return [
        line for line in lines
        if line["event"] == "incident.diagnosed" and (line.get("incident") or line.get("decision"))
    ]  # fmt: skip


@functools.cache
def waiting_lines() -> dict[tuple[str, int], tuple[str, frozenset[str]]]:
    """Return, by file and line of the child, the outermost function and the places and faults that wait there."""
    found = {}
    for path in SOURCES:
        outer = ""
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            outer = match[1] if (match := re.match(r"(?:def|class) (\w+)", text)) else outer
            if "# waits: " in text:
                found[path.name, number] = (outer, frozenset(text.split("# waits: ")[1].split()))
    return found


def is_right_line(case: Case, where: str) -> bool:
    """Return whether `where`, "file.py:12 in function", is a line in which this case waits."""
    match = re.match(r"(.*):(\d+) in ", where)
    outer, words = (
        waiting_lines().get((Path(match[1]).name, int(match[2])), ("", frozenset())) if match else ("", frozenset())
    )
    loop = "by_" + re.sub("-.*", "", case.framework)
    if not outer.startswith("by_"):  # in the fault itself: the loop does not matter
        return case.fault in words or (case.place == "callback" and "callback" in words)
    return outer == loop and not words.isdisjoint({case.place, case.fault, f"{case.place}/{case.framework}"})


def end(seen: Seen, plain: dict[str, Any]) -> str:
    """Return how a run ended: equal, near, other, failed, or endless."""
    if seen.code is None:
        return "endless"
    if seen.code or seen.trained is None:
        return "failed"
    if seen.trained["sha256"] == plain.get("sha256"):
        return "equal"
    is_near = abs(seen.trained["sum"] - plain.get("sum", 0.0)) <= 1e-3 * abs(plain.get("sum", 0.0))
    return "near" if is_near else "other"


def judged(case: Case, seen: Seen, plain: dict[str, Any]) -> Result:
    """Return the row of a run.  `plain`: what the undisturbed run of the same training learned."""
    result = {
        "part": case.part, "case": case.name, "framework": case.framework, "fault": case.fault, "place": case.place,
        "wait": case.wait, "code": seen.code, "how": (seen.fault or {}).get("how"),
        "waits": (seen.fault or {}).get("waits"),
        "attempts": sum(line["event"] == "attempt.started" for line in seen.lines),
        "suspicions": sum(line["event"] == "training.suspected" for line in seen.lines),
        "said": [line["message"] for line in seen.lines if line["event"] in ("training.suspected", "training.stalled")],
    }  # fmt: skip
    return result | (_healthy(seen) if case.part == "healthy" else _sick(case, seen, plain))


def _healthy(seen: Seen) -> Result:
    alarms = [
        line["event"] for line in seen.lines
        if line["event"] in ("training.stalled", "training.also_stalled", "attempt.stopping")
        or (line["event"] == "attempt.started" and line.get("attempt", 1) > 1)
    ]  # fmt: skip
    wrong = [f"alarm: {event}" for event in alarms]
    wrong += [] if seen.fault else ["it did not happen"]
    wrong += [] if seen.code == 0 and seen.trained else [f"exit code {seen.code}"]
    return {"alarms": len(alarms), "wrong": wrong}


def _sick(case: Case, seen: Seen, plain: dict[str, Any]) -> Result:
    if seen.fault is None:
        return {"wrong": [f"it did not happen; exit code {seen.code}"]}
    if case.framework.endswith("-silent"):
        return _uncounted(seen)
    right, found = case.right, times(seen.lines, seen.fault["clock"])
    explained = diagnoses(seen.lines)
    cause = explained[0]["findings"][0]["cause"] if explained and explained[0].get("findings") else ""
    decided = [line["decision"] for line in explained if line.get("decision")]
    action = decided[0]["action"] if decided else "notify" if explained else ""
    where = next((line.get("where", "") for line in seen.lines if line["event"] == "evidence.ready"), "")
    ended = end(seen, plain)
    wrong = []
    if found.noticed is None or found.noticed > NOTICED:
        wrong.append(f"noticed after {_seconds(found.noticed)}")
    if not right.crashes and found.acted is None and "restart" in right.actions:
        wrong.append("nothing was done")
    if found.acted is not None and found.acted > ACTED and "notify" not in right.actions:
        wrong.append(f"acted upon after {_seconds(found.acted)}")
    if not right.crashes and (found.evidence is None or found.evidence > EVIDENCE):
        wrong.append(f"evidence after {_seconds(found.evidence)}")
    if cause not in (right.causes if seen.gpu else right.causes | ON_CPU):
        wrong.append(f"cause {cause or 'none'}, not {' or '.join(sorted(right.causes))}")
    if action not in right.actions and (seen.gpu or cause in right.causes):
        wrong.append(f"remedy {action or 'none'}, not {' or '.join(sorted(right.actions))}")
    if right.has_line and not right.crashes and not is_right_line(case, where):
        wrong.append(f"line {where or 'none'}")
    if ended not in right.ends and (seen.gpu or cause in right.causes):
        wrong.append(f"it ended {ended} ({seen.code}), not {' or '.join(sorted(right.ends))}")
    slices = decided[0].get("factor", 1) if decided else 1
    return {
        **{name: None if value is None else round(value, 2) for name, value in found._asdict().items()},
        "cause": cause, "confidence": explained[0]["findings"][0]["confidence"] if cause else 0.0, "where": where,
        "remedy": f"{action}{f' 1/{slices}' if slices > 1 else ''}", "end": ended, "wrong": wrong,
    }  # fmt: skip


def _uncounted(seen: Seen) -> Result:
    """Judge a loop that nothing counts: its silence looks like its work, so this must be said in time."""
    started = next(line["clock"] for line in seen.lines if line["event"] == "attempt.started")
    said = next((line["clock"] - started for line in seen.lines if line["event"] == "training.uncounted"), None)
    stalled = any(line["event"] == "training.stalled" for line in seen.lines)
    wrong = [] if said is not None and said <= SAID else [f"that it is not counted was said after {_seconds(said)}"]
    return {"end": end(seen, {}), "remedy": "said", "wrong": wrong + ["it was judged"] * stalled}


def _seconds(value: float | None) -> str:
    return "ever: it was not" if value is None else f"{value:.1f} s"

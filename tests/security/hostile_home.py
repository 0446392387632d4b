"""A data directory, a project and a service manager in which everything foreign wants to steer the terminal.

What can be planted by another user is planted: arguments, names, paths, output, settings, environment, hosts, notes of
the probe, fields of the journal, manifests of evidence, stacks, property lists, what was learned, answers of a run.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec

from stallguard.agent import job_memory
from stallguard.agent.job import unit as unit_name
from stallguard.core.learned import BatchSizes
from stallguard.storage import learned_store, paths, run_files
from stallguard.storage.paths import RunDir
from tests.report.hostile import hostile

# A title, a cleared screen, the C1 form of a colour, a bell, an overwritten line, a reversed name, a hidden joiner.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31mred\rover\x08\u202etxt\u2066\u200b\x7f"
STEERING = tuple("\x1b\x07\x9b\r\x08\u202e\u2066\u200b\x7f\x90\x9d")
ENUMERATED = frozenset(
    "event time level run kind phase row step state evidence sensor cause remedy word longest_phase source how verb "
    "role device python platform schema id command_kind".split()
)


def steered(value: Any, key: str = "") -> Any:
    """Return a value of a journal with escapes in each text that is not a term of stallguard's."""
    if isinstance(value, dict):
        return {name: steered(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [steered(item, key) for item in value]
    return f"{value}{ESCAPES}" if isinstance(value, str) and key not in ENUMERATED else value


def steer_journal(run: RunDir) -> None:
    """Plant escapes in each line, and lines that are no JSON."""
    lines = run.journal.read_bytes().splitlines()
    made = [msgspec.json.encode(steered(msgspec.json.decode(line))) for line in lines]
    run.journal.write_bytes(b"\n".join([*made, ESCAPES.encode(), b'{"message":"\x1b]0;owned\x07"}', b""]))


def run_of(runs: Path, name: str, **more: Any) -> RunDir:
    """Write a run that is over."""
    made = paths.new_run(name, "20260101-000000", runs)
    argv = [f"train{ESCAPES}.py", f"--host={ESCAPES}", "two\nlines"]
    asked = run_files.RunRequest(
        2, made.id, argv, argv, f"/home/{ESCAPES}", run_files.utc(), run_files.Identity(1, 0.0),
        interpreter=f"/python{ESCAPES}", interpreter_why=ESCAPES, outside=ESCAPES, **more,
    )  # fmt: skip
    run_files.keep_asked(made, asked)
    return made


def snapshot(run: str) -> dict[str, Any]:
    """Return what a run that lives answers."""
    training = {
        "number": 1, "pid": 7, "place": ESCAPES, "command": f"train {ESCAPES}", "how": "", "batches": 3, "seconds": 1.0,
        "judgement": {"step": ESCAPES}, "progress": None,
    }  # fmt: skip
    return {
        "schema": 1, "run": f"{run}{ESCAPES}", "state": f"running{ESCAPES}", "attempt": 2, "pid": 7, "device": ESCAPES,
        "seconds": 5.0, "batches": 3, "silent": 1.0, "judgement": {"step": ESCAPES, "threshold": 10.0},
        "progress": {"phase": ESCAPES, "beats": 3}, "trainings": [training, {**training, "how": ESCAPES}],
        "rates": {"batches": 1.0, "cpu": 1.0}, "readings": {"memory": {"pressure": ESCAPES}}, "incidents": 1,
        "findings": [{"cause": ESCAPES}], "why": ESCAPES, "watched": 10.0,
        "next_step": {"step": ESCAPES, "seconds": 5.0}, "notifications": [{"channel": ESCAPES, "why": ESCAPES}],
        "spots": [{"role": "training", "phase": ESCAPES, "seconds": 5.0, "where": ESCAPES}], "bottlenecks": [],
    }  # fmt: skip


def build(place: Path, systemd: Path) -> RunDir:
    """Fill STALLGUARD_HOME = `place`, and the units of systemd; return the run with incidents."""
    night = hostile(place)
    steer_journal(night)
    for path in night.path.rglob("*.json"):
        if path.name not in ("run.json", ".run.json.copy", "outcome.json", "attempt.json"):
            path.write_bytes(msgspec.json.encode(steered(msgspec.json.decode(path.read_bytes()))))
    night.output.write_bytes(ESCAPES.encode() + b"\x9b31m\n" + ESCAPES.encode())
    over = run_of(place / "runs", "over")
    run_files.conclude(over, run_files.Outcome(2, 1, ESCAPES, run_files.utc(), 1.0, 0, 1, 1, 0.0))
    named = place / "runs" / f"20260101-000000-{ESCAPES}"
    named.mkdir(parents=True)
    (named / "run.json").write_bytes((over.path / "run.json").read_bytes())
    learned_store.keep_sizes(
        learned_store.CommandKey((f"train{ESCAPES}.py", ESCAPES), f"/{ESCAPES}", "digest", ESCAPES), BatchSizes(rows=8)
    )
    systemd.mkdir(parents=True)
    words = ["stallguard", "agent", "work", "--name", "night", "--at", "23:00", "--", "--", f"train{ESCAPES}.py"]
    unit = f"[Unit]\nDescription={ESCAPES}\n[Service]\nWorkingDirectory=/{ESCAPES}\nExecStart={shlex.join(words)}\n"
    (systemd / f"{unit_name('night')}.service").write_text(unit)
    job_memory.keep("night", job_memory.JobMemory(run=over.id, trouble=ESCAPES))
    return night

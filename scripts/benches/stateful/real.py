"""Runs one case in processes of its own, under a real `stallguard run`: it confirms what the forked children show."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from exactness.statements import all_in

from .cases import Case
from .children import ROOT, environment, interpreter
from .judge import Verdict, judged
from .script import written

QUIETLY = ("--set", "notify.desktop=off", "--set", "policy.backoff=0s")
OFTEN = ("--checkpoint-every", "0", "--checkpoint-cost", "100%")  # after every batch
OPERATIONS, LATE = 16, 2.5  # as in state_child.py
START = 4.0  # s in which Keras is imported: kills at a time come after it
LONGEST = 300.0
# In the training itself, and in none of the Pythons around it.
_SITE = """import os, runpy, sys
if sys.orig_argv[1:] == ["train.py"]:
    runpy.run_path(os.environ["STATE_HOOK"])["begin"](os.environ["STATE_NOTES"])
"""


def run(case: Case, keep: Path | None = None) -> Verdict:
    """Run a case as a user would, and judge it.  `keep`: where its folder stays."""
    folder = Path(tempfile.mkdtemp(prefix="sg-state-"))
    try:
        reference = _attempts(case, folder / "plain", [], guarded=False)[0]
        counts = reference["counts"].get("batch", 1)
        most = {"batch": counts, "save": OPERATIONS * case.epochs * case.steps}
        kills = [
            (kind, max(1, round(share * most[kind])) if kind in most else START + share * LATE)
            for kind, share in case.kills
        ]
        attempts = _attempts(case, folder / "guarded", kills, guarded=True)
        found: dict[str, Any] = {"spec": case.spec(), "reference": reference, "attempts": attempts}
        if not attempts[-1]["code"] and attempts[-1]["results"] != reference["results"]:
            found["again"] = _attempts(case, folder / "again", [], guarded=False)[0]
        return judged(found)
    finally:
        if keep:
            shutil.move(folder, keep / f"real-{time.monotonic_ns()}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _attempts(case: Case, folder: Path, kills: list[Any], *, guarded: bool) -> list[dict[str, Any]]:
    """Run the script to its end, and return what each attempt noted and said."""
    for name in ("work", "notes", "site"):
        (folder / name).mkdir(parents=True)
    (folder / "work" / "train.py").write_text(written(case), "utf-8")
    (folder / "notes" / "kills.json").write_text(json.dumps(kills), "utf-8")
    (folder / "site" / "sitecustomize.py").write_text(_SITE, "utf-8")
    python = str(interpreter(case.backend))
    words = [python, "train.py"]
    if guarded:
        words = [sys.executable, "-m", "stallguard", "run", "--python", python, *QUIETLY, *OFTEN, "--", *words]
    done = subprocess.run(
        words, cwd=folder / "work", check=False, capture_output=True, text=True, timeout=LONGEST,
        env={
            **environment(case.backend, str(folder / "site")), "STALLGUARD_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder), "STATE_NOTES": str(folder / "notes"),
            "STATE_HOOK": str(ROOT / "scripts" / "benches" / "stateful" / "moments_child.py"),
        },
    )  # fmt: skip
    latest = folder / "home" / "runs" / "latest"
    said = all_in(latest) if latest.exists() else []
    found: list[dict[str, Any]] = []
    for number in range(len(list((folder / "notes").glob("notes-*")))):
        rows: list[list[Any]] = []
        for line in (folder / "notes" / f"notes-{number}.jsonl").read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a killed attempt can be cut
                rows.append(json.loads(line))
        found.append({
            "code": -9, "err": "", "results": {row[1]: row[2] for row in rows if row[0] == "result"},
            "past": [row[1:] for row in rows if row[0] == "past"],
            "counts": next((row[1] for row in rows if row[0] == "counts"), {}),
            "said": [[one.kind, one.text] for one in said if one.attempt == number + 1],
        })  # fmt: skip
    found[-1] |= {"code": done.returncode, "err": done.stderr}
    return found

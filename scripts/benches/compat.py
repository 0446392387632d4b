"""`scripts/bench compat`: is Keras' public behaviour the same with stallguard and without, to the last bit?

Runs compat_child.py in each environment that is here (Keras 3 on TensorFlow, JAX and torch, Keras 2), once without
stallguard and once with it, and compares what it writes down: the order of all hooks with their logs, histories,
weights, the files of callbacks, and every exception with its type, its text and the script's own lines.  The probe
itself runs in each CPython from 3.9 on that is here, in compat_plain_child.py.  What is not here is named.

`--only NAME,...` chooses environments, `--groups GROUP,...` what is trained; `--list` shows both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.children import ROOT
from harness.results import Goal, concluded, table

HERE = Path(__file__).resolve().parent
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
GROUPS = (
    "hooks", "arrays", "sequences", "pipelines", "steps", "train_steps", "distributed", "callbacks", "stops",
    "exceptions",
)  # fmt: skip
LONG = 900.0  # seconds for one training on a slow machine


class Environment(NamedTuple):
    """Where Keras is.  `backend`: of Keras 3."""

    name: str
    python: Path
    backend: str = ""


ENVIRONMENTS = (
    Environment("tensorflow", Path(sys.executable), "tensorflow"),
    Environment("keras2", ROOT / ".venvs/keras2/bin/python"),
    Environment("tf216", ROOT / ".venvs/tf216/bin/python", "tensorflow"),
    Environment("tf218", ROOT / ".venvs/tf218/bin/python", "tensorflow"),
    Environment("jax", ROOT / ".venvs/jax/bin/python", "jax"),
    Environment("torch", ROOT / ".venvs/torch/bin/python", "torch"),
)


class Row(NamedTuple):
    """What was compared.  `differs`: where, "" if nowhere; None if it is not here."""

    what: str
    version: str
    compared: str
    differs: str | None


def interpreter(version: str) -> str | None:
    """Return a CPython of that version, None if none is here."""
    home = Path.home()
    found = [shutil.which(f"python{version}")]
    for place in (home / ".pyenv/versions", home / ".local/share/uv/python"):
        found += [str(path) for path in sorted(place.glob(f"*/bin/python{version}"))]
    for path in filter(None, found):
        shown = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                               capture_output=True, text=True, check=False)  # fmt: skip
        if shown.stdout.strip() == version:
            return path
    return None


def run(command: Sequence[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STALLGUARD_", "PYTHONPATH"))}
    return subprocess.run(
        command, cwd=folder, env={**kept, **env, "STALLGUARD_HOME": str(folder.parent / "home")}, check=False,
        capture_output=True, text=True, timeout=LONG, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def guarded(*words: str) -> list[str]:
    """Return the command that runs an interpreter's words under guard."""
    return [sys.executable, "-P", "-m", "stallguard", "run", "--quiet", "--", *words]


def batches(folder: Path) -> int:
    outcome: dict[str, Any] = json.loads((folder / "home/runs/latest/outcome.json").read_text("utf-8"))
    return int(outcome["batches"])


def difference(one: Any, other: Any, path: str = "") -> str:
    """Return where two results differ first, "" if they are equal."""
    if type(one) is not type(other):
        return f"{path}: {one!r:.80} became {other!r:.80}"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{path}: {list(one)} became {list(other)}"
        return next(filter(None, (difference(one[key], other[key], f"{path}.{key}") for key in one)), "")
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{path}: {len(one)} entries became {len(other)}"
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(a, b, f"{path}[{number}]") for number, (a, b) in pairs)), "")
    return "" if one == other else f"{path}: {one!r:.80} became {other!r:.80}"


def trained(environment: Environment, groups: str, folder: Path) -> list[Row]:
    """Train without stallguard and with it, and compare, a row a group."""
    if not environment.python.exists():
        return [Row(environment.name, "-", "no such environment: scripts/setup all makes them", None)]
    script = [str(environment.python), str(HERE / "compat_child.py")]
    env = {"KERAS_BACKEND": environment.backend} if environment.backend else {}
    results, ends = [], []
    for name, command in (("plain", script), ("guarded", guarded(*script))):
        file = folder / f"{name}.json"
        ends.append(run([*command, str(file), groups], folder / name, **env))
        if ends[-1].returncode:
            why = f"{name}: exit code {ends[-1].returncode}: {ends[-1].stderr[-600:]}"
            return [Row(environment.name, "-", "all", why)]
        results.append(json.loads(file.read_text("utf-8")))
    plain, found = results
    if difference(ends[0].stdout, ends[1].stdout):
        return [Row(environment.name, "-", "output", difference(ends[0].stdout, ends[1].stdout))]
    count = batches(folder)
    version = " ".join(ends[0].stdout.split()[-3:-1])
    return [Row(environment.name, version, group, difference(plain[group], found[group], group)) for group in plain] + [
        Row(environment.name, version, f"{count} batches counted", "" if count else "none were counted")
    ]


def probed(version: str, folder: Path) -> Row:
    """Run the probe in a CPython; compare output, errors and exit code, and count the batches."""
    python = interpreter(version)
    if python is None:
        return Row(f"CPython {version}", "-", "not here: continuous integration runs it", None)
    script = [python, str(HERE / "compat_plain_child.py")]
    plain, found = run(script, folder / "plain"), run(guarded(*script), folder / "guarded")
    one, other = ([end.returncode, end.stdout, errors(end.stderr)] for end in (plain, found))
    wrong = difference(one, other)
    if not wrong and batches(folder) != 40:
        wrong = f"{batches(folder)} batches counted of 40"
    exact = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], capture_output=True,
                           text=True, check=False).stdout.strip()  # fmt: skip
    return Row(f"CPython {version}", exact, "output, errors, exit code, 40 batches", wrong)


def errors(text: str) -> list[str]:
    """Return what is on standard error, without addresses in memory and process numbers."""
    return re.sub(r"0x[0-9a-f]+|pid=\d+", "", text).splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench compat")
    names = [environment.name for environment in ENVIRONMENTS] + ["pythons"]
    parser.add_argument("--only", default=",".join(names), metavar="NAME,...")
    parser.add_argument("--groups", default=",".join(GROUPS), metavar="GROUP,...")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    wanted, groups = options.only.split(","), options.groups.split(",")
    for kind, given, known in (("environment", wanted, names), ("group", groups, GROUPS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            sys.exit(f"bench compat: no {kind} {unknown[0]!r}; --list shows them all")
    if options.list:
        print(f"environments: {', '.join(names)}\ngroups: {', '.join(GROUPS)}")
        return 0
    began, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="sgc-", dir="/tmp") as place:
        for version in VERSIONS if "pythons" in wanted else ():
            rows.append(probed(version, Path(place) / version))
            print(f"CPython {version}: {said(rows[-1])}", file=sys.stderr, flush=True)
        for environment in ENVIRONMENTS:
            if environment.name in wanted:
                made = trained(environment, options.groups, Path(place) / environment.name)
                rows += made
                wrong = [row for row in made if row.differs]
                print(f"{environment.name}: {len(made)} rows, {len(wrong)} differ", file=sys.stderr, flush=True)
    print(table(("environment", "version", "compared", "result"), [(*row[:3], said(row)) for row in rows]))
    wrong = [row for row in rows if row.differs]
    compared = sum(row.differs is not None for row in rows)
    missing = sorted({row.what for row in rows if row.differs is None})
    absent = f"; not here: {', '.join(missing)}" if missing else ""
    goals = [Goal("comparisons that differ", len(wrong) if compared else math.nan, 0)]
    return concluded(goals, f"\n{compared} comparisons, {time.monotonic() - began:.0f} s{absent}; ")


def said(row: Row) -> str:
    return "not here" if row.differs is None else row.differs or "same"


if __name__ == "__main__":
    sys.exit(main())

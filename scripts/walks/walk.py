"""Walk a Mac through all that stallguard relies on: python scripts/walks/walk.py [--only NAME]...

Prints a table of what held and saves what the tools said as recordings for the tests.  Exit code 1 where something
did not hold, 2 where this is no Mac or there is no such check.  What is installed is removed again.
"""

from __future__ import annotations

import argparse
import datetime as dt
import getpass
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from mac import checks, recordings, table
from mac.recordings import Mac
from mac.scene import Scene, interruptible, undisturbed

from stallguard.collectors.redact import Redactor
from stallguard.host.darwin.system import facts

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "tests" / "recordings" / "macos"
PAUSE = 4.0  # seconds between what may be noticed being said and done: time for Ctrl-C


def environment(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of all that is started: runs of the walk are none of the user's."""
    return {**env, "STALLGUARD_HOME": str(home / "kept"), "STALLGUARD_LIVE": "1", "PYTHONPATH": str(ROOT)}


def say(line: str) -> None:
    """Print it for the user."""
    print(line, flush=True)


def save(scene: Scene, root: Path, mac: Mac) -> Path:
    """Write the recordings of a walk; return their directory."""
    names = (getpass.getuser(), platform.node().partition(".")[0])
    clean = recordings.cleaner(Redactor(os.environ, home=str(Path.home())).text, names)
    kept = [
        one._replace(text=clean(one.text), command=clean(one.command)) for one in scene.recordings.values()
    ]
    return recordings.keep(root, mac, dt.date.today().isoformat(), kept)  # noqa: DTZ011 - the user's day


def this_mac(scene: Scene) -> Mac:
    """Return which Mac this is."""
    known = facts()
    build = scene.tool("sw_vers", "/usr/bin/sw_vers", "-buildVersion").text.strip()
    return Mac(str(known["version"]), build, str(known["chip"]))


def main(words: list[str] | None = None) -> int:
    """Walk; return the exit code."""
    parser = argparse.ArgumentParser(description="Walk a Mac through all that stallguard relies on.")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this check (repeatable)"
    )
    options = parser.parse_args(words)
    try:
        wanted = checks.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    if sys.platform != "darwin":
        parser.error(f"these checks need a Mac with Apple silicon; here is {platform.system()}")
    home = Path(tempfile.mkdtemp(prefix=".stallguard-walk-", dir=Path.home()))
    try:
        return _walked(Scene(home, environment(os.environ, home), say), wanted)
    finally:
        with undisturbed():
            shutil.rmtree(home, ignore_errors=True)


def _walked(scene: Scene, wanted: tuple[checks.Check, ...]) -> int:
    mac = this_mac(scene)
    say(
        f"macOS {mac.version} ({mac.build}), {mac.chip}; Ctrl-C ends the walk and removes what it installed\n"
    )
    with interruptible():
        rows = checks.walk(scene, wanted, lambda: time.sleep(PAUSE))
    say("\n" + "\n".join(table.lines(rows)))
    say(f"\n{table.summary(rows)}; the tools' words are in {save(scene, RECORDINGS, mac)}")
    return table.code(rows)


if __name__ == "__main__":
    sys.exit(main())

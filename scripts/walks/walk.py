"""Walk a Mac through all that stallguard relies on: scripts/live [--only NAME]... [--zip FILE] | --import ZIP.

Prints a table of what held, and leaves one zip (mac/archive.py).  `--import` makes tests of such a zip.  Exit code 1
where something did not hold, 2 where there is no such check or zip, or where the walk cannot work here, which the shell
script scripts/live has said: it starts this with a Python that can have Metal, if one can be had.  What is installed is
removed again.  On Linux and on Intel Macs, the checks are made that can be made there.

What takes longer than about 32 minutes is asked for before the walk begins.  `--sleep`, `--night`, `--logout` and
`--three-days` make one such check alone; what the last two leave is looked at by each later walk, until it is over.
It is below `live/` in the home of stallguard, and `--clean` removes it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mac import archive, checks, claims, longer, owner, pairs, pending, sending, table, taken_over
from mac.recordings import Mac
from mac.scene import Scene, interruptible, no_answer, undisturbed
from mac.table import Row

from stallguard.host.darwin.machine import facts
from stallguard.storage import paths

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS, LIVE = ROOT / "tests" / "recordings" / "macos", ROOT / "tests" / "live"
ANSWER = 60.0  # seconds for an answer; a walk must end also if its user has gone
LOOK = 900.0  # seconds for the answer to what is looked at first
PAUSE = 4.0  # seconds between what may be noticed being said and done: time for Ctrl-C


def environment(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of all that is started: runs of the walk are none of the user's."""
    return {**env, "STALLGUARD_HOME": str(home / "kept"), "STALLGUARD_LIVE": "1", "PYTHONPATH": str(ROOT)}


def say(line: str) -> None:
    """Print it for the user."""
    print(line, flush=True)


def ask(question: str, seconds: float = ANSWER) -> bool | None:
    """Ask the user at the terminal; None if there is none, or no answer comes in time."""
    if not sys.stdin.isatty():
        return None
    print(f"{question} [y/N] ", end="", flush=True)
    if not select.select([sys.stdin], [], [], seconds)[0]:
        say(f"\nno answer within {seconds:.0f} s")
        return None
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def this_machine(scene: Scene) -> Mac:
    """Return which machine this is."""
    if sys.platform != "darwin":
        return Mac(f"Linux {platform.release()}", platform.machine(), f"{os.cpu_count()} cores")
    known = facts()
    build = scene.tool("sw_vers", "/usr/bin/sw_vers", "-buildVersion").text.strip()
    return Mac(str(known["version"]), build, str(known["chip"]))


def seen(scene: Scene, mac: Mac, rows: Sequence[Row]) -> dict[str, str]:
    """Return the files of a walk, by name, as they were seen: with all names."""
    more = dict(scene.files)
    for journal in sorted(scene.home.glob("kept/runs/*/journal.jsonl")):
        if not journal.parent.is_symlink():  # latest
            more[f"journals/{journal.parent.name}/journal.jsonl"] = journal.read_text(errors="replace")
    if scene.tracebacks:
        more["tracebacks.txt"] = "\n".join(scene.tracebacks)
    today = dt.date.today().isoformat()  # noqa: DTZ011 - the user's day
    return archive.contents(mac, today, rows, list(scene.recordings.values()), scene.words, more)


def main(words: list[str] | None = None) -> int:
    """Walk; return the exit code."""
    parser = _parser()
    options = parser.parse_args(words)
    if options.zip_in:
        return _taken_over(options.zip_in)
    place = paths.home() / "live"
    begun = pending.read(place)
    asked = [name for name in OPTIONS.values() if getattr(options, name.replace("-", "_"))]
    try:
        wanted = () if asked else checks.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.unattended:
        wanted = checks.unattended(wanted)
    if not options.only:
        wanted = (*wanted, *checks.longer_ones(asked, begun))
    home = Path(tempfile.mkdtemp(prefix=".stallguard-walk-", dir=Path.home()))
    answers = no_answer if options.unattended else ask
    scene = Scene(home, environment(os.environ, home), say, ask=answers, place=place)
    if options.plugin:
        scene.metal_pythons = pairs.metal_pythons(ROOT, Path(sys.executable), pairs.BESIDE)
    try:
        if options.clean:
            say("\n".join(longer.clean(scene)) or "there is nothing to remove")
            return 0
        return _walked(scene, wanted, options.zip, yes=options.yes)
    finally:
        with undisturbed():
            shutil.rmtree(home, ignore_errors=True)


OPTIONS = {
    "--sleep": "sleep-a-minute",
    "--night": "scheduled-night",
    "--logout": "logout",
    "--three-days": "three-days",
}  # and their checks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/live", description="Walk a Mac through all that stallguard relies on.", allow_abbrev=False
    )  # scripts/live reads the options too
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this check (repeatable)")
    parser.add_argument(
        "--unattended", action="store_true", help="only what needs no GPU and what no user notices; asks nothing"
    )
    parser.add_argument("--plugin", action="store_true", help="also with the community's plug-in, which is built here")
    for option, name in OPTIONS.items():
        check = next(one for one in checks.LONGER if one.name == name)
        parser.add_argument(option, action="store_true", dest=name.replace("-", "_"), help=check.says)
    parser.add_argument(
        "--yes", action="store_true", help="agree to all that takes longer, and that the zip is written"
    )
    parser.add_argument(
        "--clean", action="store_true", help="remove what --logout and --three-days have left, and do nothing else"
    )
    parser.add_argument("--zip", type=Path, metavar="FILE", help="where the zip goes (stallguard-live-MACHINE.zip)")
    parser.add_argument("--import", type=Path, metavar="ZIP", dest="zip_in", help="make tests of the zip of a walk")
    return parser


def _taken_over(path: Path) -> int:
    try:
        walked, known = archive.read(path), claims.read(LIVE / "claims.toml")
        done = taken_over.take_over(walked, RECORDINGS, LIVE)
    except (OSError, archive.Damaged, claims.Unreadable) as error:
        say(f"scripts/live: {error}")
        return 2
    say("\n".join([*done, "", *claims.lines(claims.judged(known, walked.rows))]))
    return 0


def _walked(scene: Scene, wanted: Sequence[checks.Check], path: Path | None, *, yes: bool) -> int:
    mac, here = this_machine(scene), checks.place()
    say(f"{mac.system} ({mac.build}), {mac.chip}; Ctrl-C ends the walk and removes what it installed")
    with interruptible():
        try:
            agreed, rows = checks.agreed(wanted, (lambda _: True) if yes else scene.ask, here)
        except KeyboardInterrupt:
            return 1
        say(f"{len(agreed)} checks, about {checks.estimate(agreed, here)} min\n")
        rows = checks.walk(scene, agreed, lambda: time.sleep(PAUSE), here) + rows
    say("\n" + "\n".join(table.lines(rows)))
    path = path or Path.cwd() / f"stallguard-live-{mac.folder}.zip"
    with undisturbed():
        masks = sending.of_this_machine(ROOT, Path.home(), owner.names())
        files = masks.files(seen(scene, mac, rows))
    wait = LOOK if scene.ask is ask else 0.0  # unattended: there is no user

    def may_write(question: str) -> bool | None:
        return True if yes else ask(question, wait) if wait else None

    with interruptible():
        told = sending.offer(files, path, scene.home / "to-send", say, may_write)
    say(f"\n{table.summary(rows)}; {told}")
    return table.code(rows)


if __name__ == "__main__":
    sys.exit(main())

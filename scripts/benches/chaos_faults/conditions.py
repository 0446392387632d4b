"""stallguard started under odd conditions: limits, signals, closed descriptors, hidden packages, a bad installation."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from .fault import linux, row
from .stage import BATCHES, Stage, expect, same, whole


@row(needs=linux)
def supervisor_too_little_memory(stage: Stage) -> str:
    """stallguard is started with 400 MB of address space ->
    refused with 126 and a reason before the training begins"""
    script = stage.script("open('began', 'w')")
    limit = 400_000_000
    ended = stage.guard(script, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit,) * 2)).ends(126)
    expect("the address space is limited to 400 MB" in ended.err, ended.err)
    expect(not (stage.work / "began").exists(), "the training began")
    return "exit code 126, the training did not begin"


@row()
def supervisor_few_descriptors(stage: Stage) -> str:
    """stallguard is started with 8, 16, 40 and 64 descriptors ->
    one error with a documented code before the training begins, or the training's own end"""
    script = stage.script("open('began', 'w')\nraise SystemExit(7)")
    seen = []
    for count in (8, 16, 40, 64):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count,) * 2)  # noqa: B023, E731 - now
        ended = stage.guard(script, preexec_fn=limit).ended()
        began = stage.work / "began"
        expect(ended.code == (7 if began.exists() else ended.code), f"{count}: began, and ended with {ended.code}")
        expect(began.exists() or ended.code in (125, 126), f"{count}: exit code {ended.code}: {ended.err[-300:]}")
        expect("Traceback" not in ended.err, f"{count}: {ended.err[-600:]}")
        began.unlink(missing_ok=True)
        seen.append(f"{count}: {ended.code}")
    return ", ".join(seen)


@row()
def child_signal_ignored(stage: Stage) -> str:
    """stallguard is started with SIGCHLD ignored, as by some daemons -> the training's own exit code"""
    script = stage.script(BATCHES)
    live = stage.guard(script, "5", "0.01", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    return whole(live.ended(), 5)


@row()
def signals_blocked_at_start(stage: Stage) -> str:
    """stallguard is started with all signals blocked, as by a careless launcher ->
    the training's own exit code; `stallguard stop` ends a second one"""
    script = stage.script(BATCHES)
    block = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # noqa: E731 - of two starts
    seen = whole(stage.guard(script, "5", "0.01", preexec_fn=block).ended(), 5)
    live = stage.guard(script, "6000", "0.05", options=("--grace", "1s"), preexec_fn=block)
    live.training()
    expect(stage.verb("stop").code == 0, "stop is refused")
    ended = live.ended()
    expect(ended.code in (143, 137), f"exit code {ended.code}")
    return f"{seen}; stopped with {ended.code}"


@row()
def standard_descriptors_closed(stage: Stage) -> str:
    """stallguard is started with input, output and errors closed ->
    the training's own exit code and results, as in plain Python"""
    script = stage.script("import sys\nopen('seen', 'a').write(repr(sys.stdout) + ' ')\nprint('x')\nsys.exit(7)")
    line = 'exec 0<&- 1>&- 2>&-; exec "$@"'
    for command in ([sys.executable, script], stage.guarding([script])):
        stage.start(["sh", "-c", line, "sh", *command]).ends(7)
    seen = (stage.work / "seen").read_text().split()
    expect(seen == ["None", "None"], f"standard output: {seen}")
    return "exit code 7, no output, both times"


@row()
def warnings_are_errors(stage: Stage) -> str:
    """PYTHONWARNINGS=error, PYTHONDEVMODE=1 and PYTHONHASHSEED=0 around stallguard ->
    output and exit code as without stallguard"""
    env = {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1", "PYTHONHASHSEED": "0"}
    ended = same(stage, stage.script(BATCHES), "5", "0.01", env=env)
    return f"exit code {ended.code}, same output and errors"


@row()
def packages_hidden(stage: Stage) -> str:
    """PYTHONPATH leads to modules named msgspec, structlog, psutil and click that are the user's own ->
    output and exit code as without stallguard"""
    place = stage.folder / "own"
    place.mkdir()
    for name in ("msgspec", "structlog", "psutil", "click", "watchdog", "jinja2", "rich"):
        (place / f"{name}.py").write_text(f"mine = {name!r}\n")
    script = stage.script("import psutil, click, msgspec\nprint(psutil.mine, click.mine, msgspec.mine)\nexit(7)")
    ended = same(stage, script, env={"PYTHONPATH": str(place)})
    expect(ended.lines == ["psutil click msgspec"], f"{ended.lines}")
    return f"exit code {ended.code}, the user's own modules in the training alone"


DAMAGED = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "stallguard.supervisor.guard":
            raise SystemError("a damaged installation")
sys.meta_path.insert(0, Refuse())
from stallguard.cli import main
main()
"""


@row()
def installation_damaged(stage: Stage) -> str:
    """a module of stallguard cannot be loaded once the training runs ->
    the training ends with its own code and output; that it is unguarded is said"""
    command = [sys.executable, "-c", DAMAGED, "run", "--python", sys.executable, stage.script(BATCHES), "10", "0.02"]
    ended = stage.start(command).ended()
    expect("goes on unguarded" in ended.err, f"not said: {ended.err}")
    return whole(ended, 10)


@row()
def umask_000(stage: Stage) -> str:
    """stallguard is started with umask 000 -> the directories of the run and its sockets are the user's alone"""
    live = stage.watched(BATCHES, "40", "0.05", preexec_fn=lambda: os.umask(0))
    open_to_others = _open_to_others(stage.home)
    live.ended()
    open_to_others |= _open_to_others(stage.home)
    expect(not open_to_others, f"open to others: {sorted(open_to_others)}")
    return "nothing is open to others"


def _open_to_others(home: Path) -> set[str]:
    """Return the files and sockets that other users could reach."""
    found, places = set(), [home / "runs", home / "s"]
    for place in places:
        for path in place.glob("*"):
            if not path.is_symlink() and path.lstat().st_mode & 0o077:
                found.add(str(path.relative_to(home)))
    return found

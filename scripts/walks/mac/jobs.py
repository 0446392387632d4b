"""More checks of jobs: an hour that comes, what a job finds around it, ssh, and a bootout under an adopted training.

Nothing of them stays.  Must not judge: verdicts_jobs does.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mac import verdicts_jobs
from mac.guarded import QUIET
from mac.night import COMES, STEPS, THROTTLE, Night, removed
from mac.scene import Said, Scene, undisturbed, until
from mac.table import Row, judged, unknown
from stallguard.agent.job import label
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

HOUR, SSH = "scripts-live-hour", "scripts-live-ssh"  # the jobs that are made; no user's has such a name
AHEAD = 90  # seconds, at least, until the hour of the job: a start within a minute of it counts as that start
SLACK = 60.0  # seconds that it can be late, and takes
ENDS = 90.0  # seconds for launchd and stallguard to end a training: beyond the job's ExitTimeOut of a minute
# ssh must not ask, and must not note this machine as known.
SSH_WORDS = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=no", "-o",
             "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "localhost")  # fmt: skip
FACTS = """
import json, os, resource, subprocess, sys, time
import stallguard
for _ in range(20):
    stallguard.beat()
    time.sleep(0.05)
session = ""
if sys.platform == "darwin":
    words = ["/bin/launchctl", "managername"]
    session = subprocess.run(words, capture_output=True, text=True).stdout.strip()
umask = os.umask(0)
os.umask(umask)
facts = {"names": sorted(os.environ), "folders": os.environ.get("PATH", "").count(":") + 1, "cwd": os.getcwd(),
         "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "session": session, "umask": umask}
with open(sys.argv[1] + ".draft", "w") as file:
    json.dump(facts, file)
os.replace(sys.argv[1] + ".draft", sys.argv[1])
"""


def due(now: dt.datetime) -> dt.datetime:
    """Return the first full minute that is so far away that the job does not start when it is loaded."""
    least = now + dt.timedelta(seconds=AHEAD)
    return least.replace(second=0, microsecond=0) + dt.timedelta(minutes=1)


def install(scene: Scene, name: str, *words: str) -> Said:
    """Install a job; `words`: options, --, COMMAND."""
    settings = ("--set", f"agent.throttle={THROTTLE}", *QUIET, "--python", sys.executable)
    return scene.stallguard("agent", "install", "--name", name, *settings, *words)


def refused(check: str, said: Said) -> Row:
    """Return the row of a job that cannot be installed: on Linux there need not be a service manager."""
    why = " ".join(said.text.split())[:200]
    if sys.platform == "darwin":
        return judged(check, holds=False, figure=f"exit code {said.code}", means=why)
    return unknown(check, f"there is no job here: {why}")


def status(scene: Scene, name: str) -> dict[str, Any]:
    """Return what `agent status` says of a job."""
    said = scene.stallguard("agent", "status", "--name", name, "--json")
    job: dict[str, Any] = json.loads(said.text.splitlines()[-1])["job"] if said.code in (0, 1) else {}
    return job


def uninstall(scene: Scene, *names: str) -> None:
    """Remove jobs, loaded or not."""
    with undisturbed():
        for name in names:
            scene.stallguard("agent", "uninstall", "--name", name)
            if sys.platform == "darwin":
                scene.launchctl("bootout", f"{scene.domain}/{label(name)}")


def _cleaned(name: str, part: Callable[[Scene], Iterator[Row]]) -> Callable[[Scene], Iterator[Row]]:
    """Return the check of a part, after which its job is removed, also if it was interrupted."""

    def check(scene: Scene) -> Iterator[Row]:
        try:
            yield from part(scene)
        finally:
            uninstall(scene, name)

    return check


def _hour(scene: Scene) -> Iterator[Row]:
    """Install a job whose hour is near, wait for it, and look at what is recorded of it and what it found."""
    script, facts = scene.home / "hour.py", scene.home / "hour.json"
    script.write_text(FACTS)
    at = due(dt.datetime.now().astimezone())
    said = install(scene, HOUR, "--at", f"{at:%H:%M}", "--", str(script), str(facts))
    if said.code:
        yield refused("a start at its hour", said)
        return
    until(lambda: facts.exists() and status(scene, HOUR).get("run_state") not in ("", "running"),
          (at - dt.datetime.now().astimezone()).total_seconds() + SLACK)  # fmt: skip
    file = scene.kept / "agents" / f"{HOUR}.json"
    memory = json.loads(file.read_text()) if file.exists() else {}
    morning = scene.stallguard("morning", "--since", "1h", "--json")
    nights = json.loads(morning.text.splitlines()[-1]).get("runs", []) if morning.code == 0 else []
    mine: dict[str, Any] = next((one for one in nights if one.get("job") == HOUR), {})
    yield verdicts_jobs.at_its_hour(at, memory.get("started", ""), mine.get("state", ""), mine.get("batches", 0))
    found = json.loads(facts.read_text()) if facts.exists() else {}
    yield from verdicts_jobs.around(found, str(scene.home.resolve()), sys.platform)


hour = _cleaned(HOUR, _hour)


def _ssh(scene: Scene) -> Iterator[Row]:
    """Install a job by ssh, if this machine lets its user in without a password."""
    reached = scene.tool("ssh_true", *SSH_WORDS, "true", seconds=15)
    if reached.code:
        yield verdicts_jobs.unreachable(reached.code, reached.text)
        return
    session = scene.tool("ssh_managername", *SSH_WORDS, "launchctl managername", seconds=15)
    script = scene.home / "ssh.py"
    script.write_text("import stallguard; stallguard.beat()\n")
    far = f"{(dt.datetime.now().astimezone() + dt.timedelta(hours=12)):%H}:00"
    env = [f"{name}={scene.env[name]}" for name in ("STALLGUARD_HOME", "PYTHONPATH") if name in scene.env]
    words = ("env", *env, sys.executable, "-P", "-m", "stallguard", "agent", "install", "--name", SSH, "--at", far,
             "--python", sys.executable, *QUIET, "--", str(script))  # fmt: skip
    said = scene.tool("ssh_install", *SSH_WORDS, shlex.join(words), seconds=60)
    loaded = bool(status(scene, SSH).get("loaded")) if said.code == 0 else False
    yield verdicts_jobs.over_ssh(said.code, said.text, session.text.strip(), loaded=loaded)


ssh = _cleaned(SSH, _ssh)


@removed
def bootout(night: Night) -> Iterator[Row]:
    """Kill stallguard under a job, so that its training is adopted, and have launchd end the job."""
    said = night.begin()
    if said.code:
        yield refused("bootout", said)
        return
    adopted = adopt(night)
    run = latest(night.scene)
    record = run_files.recall_attempt(run) if run else None
    if run is None or record is None or not adopted:
        yield judged("bootout", holds=False, figure=f"taken up again: {adopted}", means="the training is adopted")
        return
    night.scene.launchctl("bootout", night.target)
    gone = until(lambda: not run_files.lives(record.process) and run_files.outcome(run) is not None, ENDS)
    end = run_files.outcome(run)
    yield verdicts_jobs.ended("bootout", gone=gone and not run_files.lives(record.process),
                              code=end.code if end else None, why=end.why if end else "")  # fmt: skip


def adopt(night: Night) -> bool:
    """Kill stallguard under the job; return whether launchd's next one takes the training up."""
    until(night.is_running, COMES)
    until(lambda: len(night.output()) > STEPS, COMES)
    first = night.print().pid
    if first is None:
        return False
    os.kill(first, signal.SIGKILL)
    return until(lambda: night.print().pid not in (None, first) and night.is_running(), COMES)


def latest(scene: Scene) -> RunDir | None:
    """Return the newest run of the walk."""
    link = scene.kept / "runs" / "latest"
    return RunDir(Path(link).resolve()) if link.exists() else None

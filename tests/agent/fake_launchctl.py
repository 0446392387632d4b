"""A launchctl for tests: behaves as the recorded one does, slow endings and unclear errors included.

Its launchd is the file state.json in the directory FAKE_LAUNCHD.  Time is counted in calls: an ending job is gone
after `teardown` further ones.  Knobs that a test may set in the state: `session` (a user is logged in),
`teardown`, `bootstrap` (exit codes that come first; "lie" loads the job and says 5 all the same), `kickstart` (as
that), `disabled_code`.
Every call is written to calls.txt.
"""

from __future__ import annotations

import json
import os
import plistlib
import stat
import sys
from pathlib import Path

WORDS = {
    1: "Operation not permitted",
    3: "No such process",
    5: "Input/output error",
    17: "File exists",
    36: "Operation now in progress",
    37: "Operation already in progress",
    119: "Service is disabled",
    125: "Domain does not support specified action",
}
FRESH = {
    "session": True,
    "teardown": 2,
    "bootstrap": [],
    "kickstart": [],
    "disabled_code": 5,
    "disabled": [],
    "jobs": {},
}


class Fake:
    """One call of launchctl."""

    def __init__(self, place: Path) -> None:
        self.file = place / "state.json"
        self.state = FRESH | (json.loads(self.file.read_text()) if self.file.exists() else {})
        self.jobs = self.state["jobs"]

    def call(self, words: list[str]) -> int:
        with (self.file.parent / "calls.txt").open("a") as calls:
            calls.write(" ".join(words) + "\n")
        self.pass_time()
        code = getattr(self, words[0].replace("-", "_"))(*words[1:])
        self.file.write_text(json.dumps(self.state))
        return code

    def pass_time(self) -> None:
        for label, job in list(self.jobs.items()):
            for what in ("leaving", "ending"):
                if job.get(what) is not None:
                    job[what] -= 1
            if job.get("leaving") is not None and job["leaving"] < 0:
                del self.jobs[label]
            elif job.get("ending") is not None and job["ending"] < 0:
                job |= {"ending": None, "pid": None, "exit": 0}

    def fail(self, what: str, code: int) -> int:
        print(f"{what}: {code}: {WORDS[code]}", file=sys.stderr)
        return code

    def absent(self, target: str) -> int:
        label = target.split("/", 2)[2]
        print(f'Bad request.\nCould not find service "{label}" in domain for user gui: 501', file=sys.stderr)
        return 113

    def job(self, target: str):
        return self.jobs.get(target.split("/", 2)[2])

    def print(self, target: str) -> int:
        if not self.state["session"]:
            return self.fail("Could not print domain", 125)
        if target.count("/") == 1:
            print(f"{target} = {{\n\ttype = login\n\tstate = active\n}}")
            return 0
        job = self.job(target)
        if job is None:
            return self.absent(target)
        print(printed(target, job))
        return 0

    def print_disabled(self, domain: str) -> int:
        lines = [f'\t\t"{label}" => disabled\n' for label in self.state["disabled"]]
        print(f'{domain} = {{\n\tdisabled services = {{\n\t\t"com.apple.ftpd" => enabled\n{"".join(lines)}\t}}\n}}')
        return 0

    def enable(self, target: str) -> int:
        label = target.split("/", 2)[2]
        self.state["disabled"] = [name for name in self.state["disabled"] if name != label]
        return 0

    def disable(self, target: str) -> int:
        self.state["disabled"].append(target.split("/", 2)[2])
        return 0

    def bootout(self, target: str) -> int:
        job = self.job(target)
        if not self.state["session"]:
            return self.fail("Boot-out failed", 125)
        if job is None:
            return self.fail("Boot-out failed", 3)
        if job.get("leaving") is not None:
            return self.fail("Boot-out failed", 36)
        job["leaving"] = self.state["teardown"] if job["pid"] else 0
        return 0

    def bootstrap(self, domain: str, file: str) -> int:
        if not self.state["session"]:
            return self.fail("Bootstrap failed", 125)
        said = self.state["bootstrap"].pop(0) if self.state["bootstrap"] else 0
        if said and said != "lie":
            return self.fail("Bootstrap failed", said)
        code = self.load(domain, Path(file))
        return self.fail("Bootstrap failed", code or 5) if code or said else 0

    def load(self, domain: str, file: Path) -> int:
        try:
            keys = plistlib.loads(file.read_bytes())
        except (OSError, ValueError):
            return 5
        label = keys["Label"]
        if stat.S_IMODE(file.stat().st_mode) & 0o022 or file.name != f"{label}.plist":
            return 5
        if label in self.state["disabled"]:
            return self.state["disabled_code"]
        if label in self.jobs:
            return 37 if self.jobs[label].get("leaving") is not None else 5
        self.jobs[label] = {"file": str(file), "keys": keys, "pid": None, "runs": 0, "exit": None, "domain": domain}
        if keys.get("RunAtLoad") or "SuccessfulExit" in keys.get("KeepAlive", {}):
            self.spawn(self.jobs[label])
        return 0

    def spawn(self, job) -> None:
        job["runs"] += 1
        if Path(job["keys"]["StandardOutPath"]).parent.is_dir():
            job["pid"] = 4000 + job["runs"]
        else:
            job["exit"] = 78

    def kickstart(self, target: str) -> int:
        job = self.job(target)
        if job is None:
            return self.absent(target)
        said = self.state["kickstart"].pop(0) if self.state["kickstart"] else 0
        if said:
            return self.fail("Could not kickstart service", said)
        if not job["pid"]:
            self.spawn(job)
        return 0

    def kill(self, _signal: str, target: str) -> int:
        job = self.job(target)
        if job is None:
            return self.absent(target)
        if not job["pid"]:
            return 3
        job["ending"] = self.state["teardown"]
        return 0


def printed(target: str, job) -> str:
    keys = job["keys"]
    lines = [
        f"\tactive count = {int(bool(job['pid']))}",
        f"\tpath = {job['file']}",
        "\ttype = LaunchAgent",
        f"\tstate = {'running' if job['pid'] else 'not running'}",
        "",
        f"\tprogram = {keys['ProgramArguments'][0]}",
        "\targuments = {",
        *(f"\t\t{word}" for word in keys["ProgramArguments"]),
        "\t}",
        "",
        f"\tstdout path = {keys['StandardOutPath']}",
        "\tdefault environment = {\n\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin\n\t}",
        "",
        f"\tdomain = {job['domain']} [100003]",
        f"\tminimum runtime = {keys.get('ThrottleInterval', 10)}",
        f"\texit timeout = {keys.get('ExitTimeOut', 5)}",
        f"\truns = {job['runs']}",
        *([f"\tpid = {job['pid']}"] if job["pid"] else []),
        f"\tlast exit code = {last(job)}",
        "",
        "\tresource coalition = {\n\t\tID = 1231\n\t\tstate = active\n\t\tactive count = 1\n\t}",
        "",
        "\tspawn type = interactive (4)",
        "\tproperties = keepalive | runatload",
    ]
    return "\n".join([f"{target} = {{", *lines, "}"])


def last(job) -> str:
    return {None: "(never exited)", 78: "78: EX_CONFIG"}.get(job["exit"], job["exit"])


if __name__ == "__main__":
    sys.exit(Fake(Path(os.environ["FAKE_LAUNCHD"])).call(sys.argv[1:]))

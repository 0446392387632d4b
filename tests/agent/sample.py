"""The job behind launchd/com.stallguard.night.plist.  `python -m tests.agent.sample` writes that file anew."""

from __future__ import annotations

from pathlib import Path

from stallguard.agent import launchd
from stallguard.agent.job import AgentJob, Schedule

FILE = Path(__file__).parent.parent.parent / "launchd" / "com.stallguard.night.plist"
JOB = AgentJob(
    name="night",
    python="/Users/me/.local/share/uv/tools/stallguard-train/bin/python",
    run=(
        "--stop-at", "07:30", "--python", "/Users/me/train/.venv/bin/python",
        "--", "/Users/me/train/train.py", "--epochs", "200",
    ),
    cwd="/Users/me/train",
    log="/Users/me/Library/Logs/stallguard/night.log",
    schedule=Schedule(at=("23:00",)),
    env={
        "LANG": "en_US.UTF-8",
        "PATH": "/Users/me/train/.venv/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONUNBUFFERED": "1",
    },
    exit_timeout=180,
)  # fmt: skip

if __name__ == "__main__":
    FILE.write_bytes(launchd.render(JOB))

"""A run in which everything foreign wants to be markup, code, or a steering of the terminal."""

from __future__ import annotations

import msgspec

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from tests.report.nights import night

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>"
STEER = "\x1b[2J\x1b]0;owned\x07\u202etxt.exe\u2028"
HEBREW = "\u05e9\u05dc\u05d5\u05dd"
SECRET = "hunter2-s3cr3t-value"


def hostile(place) -> RunDir:
    """Write it."""
    run = night(place, minutes=6, stalls=1)
    text = run.journal.read_bytes().decode()
    evil = msgspec.json.encode(EVIL + STEER).decode()[1:-1]
    for innocent in ("train.py:88 in step", "it is inside a training step", "a restart has helped against this before"):
        text = text.replace(innocent, evil)
    run.journal.write_text(text.replace("2.18.1", evil))
    asked = run_files.asked(run)
    command = [f"train{EVIL}.py", "--api-key", SECRET]
    run_files.write(run.asked, msgspec.structs.replace(asked, command=command, argv=command))
    incident = run.incident(1)
    (incident / "stacks.txt").write_text(
        f'Current thread 0x1 (most recent call first):\n  File "/home/{EVIL}.py", line 8 in <b>{EVIL}\n'
    )
    printed = f"{EVIL}{STEER}\n{HEBREW}\nkey {SECRET}\n".encode() + b"\xff\xfe broken\n"
    (incident / "output.txt").write_bytes(printed)
    run.output.write_bytes(printed)
    return run

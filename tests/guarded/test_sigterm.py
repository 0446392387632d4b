"""A stalled script with a handler for SIGTERM: one that saves is given its grace, one that only notes it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .runs import AT_ONCE, Guarded, guard

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs the wait sites of threads, which only Linux shows"
)
GRACE = 60.0
KEYS = [
    f"{row}.{prior}{kind}"
    for row in ("step", "unclassified")
    for prior in ("", "prior_")
    for kind in ("deadlock", "external")
]
STALLS = [*AT_ONCE, *(word for key in KEYS for word in ("--set", f"detector.rows.{key}=4s"))]

STALLING = """
import signal, sys, threading, time
import stallguard
asked = False
{handler}
signal.signal(signal.SIGTERM, handle)
end = time.monotonic() + 1.2
while time.monotonic() < end:  # steps that compute
    stallguard.beat()
    sum(range(100_000))
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
NOTES = """
def handle(number, frame):
    global asked
    print("noted", flush=True)
    asked = True
"""
SAVES = """
def handle(number, frame):
    with open("model.part", "wb") as file:
        for _ in range(12):
            file.write(bytes(100_000))
            file.flush()
            time.sleep(0.5)  # a slow disk
    print("saved", flush=True)
    sys.exit(0)
"""
GATHERS = """
def handle(number, frame):
    end = time.monotonic() + 6
    while time.monotonic() < end:
        sum(range(100_000))
    print("saved", flush=True)
    sys.exit(0)
"""


def stall(place: Path, handler: str) -> Guarded:
    script = place / "script.py"
    script.write_text(STALLING.format(handler=handler))
    return guard(place / "home", *STALLS, "--on-stall", "stop", "--grace", f"{GRACE}s", str(script), cwd=place)


def signalled(run: Guarded) -> dict[str, float]:
    """Return when each signal was sent to the training, in seconds."""
    return {
        action["name"]: action["clock"] for action in run.actions("attempt.signalled")
        if action["name"] in ("TERM", "KILL")
    }  # fmt: skip


def test_a_script_that_only_notes_sigterm_is_not_waited_for(tmp_path: Path) -> None:
    run = stall(tmp_path, NOTES)

    sent = signalled(run)
    assert run.code == 124, run.err
    assert run.out == b"noted\n"
    assert sent["KILL"] - sent["TERM"] < GRACE / 2
    assert run.announced("attempt.sigterm_unused")


@pytest.mark.parametrize("handler", [SAVES, GATHERS], ids=["writes", "computes"])
def test_a_script_that_saves_at_sigterm_is_waited_for(tmp_path: Path, handler: str) -> None:
    run = stall(tmp_path, handler)

    assert run.code == 124, run.err
    assert run.out == b"saved\n"
    assert "KILL" not in signalled(run)

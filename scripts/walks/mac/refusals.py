"""Where a walk cannot work: said before anything is done.  Pure."""

from __future__ import annotations

from pathlib import Path

GUARDED = ("Desktop", "Documents", "Downloads")  # a job of launchd must not read there [macos.md 7.1]


def refusals(root: Path, home: Path, developer: int, session: str, *, unattended: bool = False) -> list[str]:
    """Return why a walk cannot work on this Mac, in sentences; none if it can.

    `developer`: the exit code of `xcode-select -p`; `session`: what `launchctl managername` prints.  `unattended`: no
    job of launchd is made.
    """
    found = []
    guarded = next((name for name in GUARDED if root.is_relative_to(home / name)), None)
    if guarded and not unattended:
        found.append(
            f"this clone is inside {guarded}, which macOS keeps from jobs of launchd: clone it elsewhere, for example "
            "into your home directory"
        )
    if developer:
        found.append("the command line tools are absent (sample, vmmap): install them with: xcode-select --install")
    if session.strip() != "Aqua" and not unattended:
        found.append(
            "you are not logged in at the screen (ssh, perhaps), so launchd has no session for your jobs: log in at "
            "the Mac and start this in its Terminal"
        )
    return found

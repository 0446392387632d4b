"""The images of the workflow: each is known, and none is gone from GitHub.

An image whose end is past fails: its jobs cannot run there either, so nothing that worked stops by this check.  Before
its end, and if the announcements were last read half a year ago, it warns and passes: the calendar alone must not break
a project in which nothing was changed.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import NamedTuple

WORKFLOW = ".github/workflows/ci.yml"
SOON = datetime.timedelta(days=60)  # GitHub's brownouts of macos-14 began 28 days before its end
STALE = datetime.timedelta(days=182)  # macos-14's end was announced ten months before it
LOOKED = datetime.date(2026, 11, 28)  # when the announcements were read: github.com/actions/runner-images/issues
IMAGE = re.compile(r"\bos: *([\w.-]+)|^ *runs-on: *([\w.-]+) *$", re.MULTILINE)


class Image(NamedTuple):
    """A label of `runs-on`.  `ended`: its last announced day; None: none is announced."""

    began: datetime.date | None
    ended: datetime.date | None
    source: str  # an issue of actions/runner-images
    then: str = ""  # the label that follows it


IMAGES = {
    "macos-13": Image(None, datetime.date(2025, 12, 8), "#13046", "macos-15-intel"),
    "macos-14": Image(None, datetime.date(2026, 11, 2), "#13518", "macos-15"),
    "macos-15": Image(datetime.date(2025, 4, 10), None, "#11486", "macos-26"),
    # "until August 2027": the month's last day, so that nothing fails while it can still be there.
    "macos-15-intel": Image(datetime.date(2025, 9, 19), datetime.date(2027, 8, 31), "#13046", "macos-26-intel"),
    "macos-26": Image(datetime.date(2026, 2, 26), None, "#13739"),
    "macos-26-intel": Image(datetime.date(2026, 2, 26), None, "#13739"),
    "ubuntu-latest": Image(None, None, "README.md"),  # a label that GitHub moves
}  # macOS 27 has no label of its own yet: the image `xcode-27` is a preview (#14404)


def used(workflow: str) -> list[tuple[int, str]]:
    """Return (line, image) of each place of a workflow that names one."""
    found = ((workflow.count("\n", 0, match.end()) + 1, match[1] or match[2]) for match in IMAGE.finditer(workflow))
    return list(found)


def judged(workflow: str, today: datetime.date) -> tuple[list[str], list[str]]:
    """Return (what fails, what warns) about a workflow's images on a day."""
    failures: list[str] = []
    warnings: list[str] = []
    for line, name in used(workflow):
        place, image = f"{WORKFLOW}:{line}: {name}", IMAGES.get(name)
        if image is None:
            failures.append(f"{place} is unknown: add it to IMAGES of scripts/checks/images.py, with its dates")
        elif image.ended is not None and today > image.ended - SOON:
            gone = today > image.ended
            words = f"{'ended' if gone else 'ends'} on {image.ended} ({image.source}): use {image.then} in this line"
            (failures if gone else warnings).append(f"{place} {words}")
        elif image.began is not None and today < image.began:
            failures.append(f"{place} begins on {image.began} ({image.source})")
    if today - LOOKED > STALE:
        words = "see which images have an end now, renew IMAGES and LOOKED"
        warnings.append(f"scripts/checks/images.py: the announcements were read on {LOOKED}: {words}")
    return failures, warnings


def main() -> None:
    """Print what warns; exit with what fails."""
    workflow = (Path(__file__).resolve().parents[2] / WORKFLOW).read_text("utf-8")
    failures, warnings = judged(workflow, datetime.datetime.now(datetime.UTC).date())
    print("\n".join(f"warning: {text}" for text in warnings))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()

"""`scripts/report-pictures`: the report page as it looks, for docs/images: four runs, wide and narrow, light and dark.

The runs are the synthetic nights of the bench: a healthy one, one that recovered, one that stallguard gave up on, and
one of eight hours.  Needs Chromium with its driver (`scripts/setup browser`).  Takes half a minute.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

import msgspec

from stallguard.report import document, html_page
from stallguard.report.subprocess_writer import NAME
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from tests.report.browser import MISSING, Browser
from tests.report.nights import night

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images" / "report"
SIZES = ((1280, 800), (400, 800))
SCHEMES = ("light", "dark")


def runs(place: Path) -> dict[str, RunDir]:
    """Write the runs; return them by name."""
    made = {
        "healthy": night(place / "healthy", minutes=40, rate=50, stalls=0),
        "recovered": night(place / "recovered", minutes=40, rate=50, stalls=2),
        "gave-up": night(place / "gave-up", minutes=20, rate=50, stalls=3),
        "eight-hours": night(place / "eight-hours", minutes=480, rate=200, stalls=10),
    }
    run = made["gave-up"]
    end = run_files.outcome(run)
    if end is None:
        raise FileNotFoundError(run.path / "outcome.json")
    why = "3 restarts within 20 min did not help"
    run_files.write(run.path / "outcome.json", msgspec.structs.replace(end, code=124, why=why))
    (run.checkpoints / "fit" / "1" / "g1").mkdir(parents=True)
    return made


def main() -> int:
    """Draw the first screen of each run, and return the exit code."""
    if MISSING:
        print(f"report-pictures: {MISSING}", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    browser = Browser()
    try:
        with tempfile.TemporaryDirectory() as place:
            for name, run in runs(Path(place)).items():
                file = run.path / NAME
                file.write_text(html_page.render(document.make(run, {}), beside=True))
                for width, height in SIZES:
                    for scheme in SCHEMES:
                        browser.show(file, width=width, height=height, scheme=scheme)
                        shot = browser.devtools("Page.captureScreenshot", format="png")["data"]
                        path = IMAGES / f"{name}-{width}-{scheme}.png"
                        path.write_bytes(base64.b64decode(shot))
                        print(path.relative_to(ROOT))
    finally:
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`scripts/pictures`: the README's pictures of `stallguard top` and `stallguard report`, drawn from a real run.

Runs the drill's training in an empty directory with a STALLGUARD_HOME of its own, asks the run for its status until it
ends, and draws the last possible stall as `top` shows it and the beginning of the report.  Takes a minute.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.terminal_theme import TerminalTheme

from stallguard.cli import rehearsal, top
from stallguard.cli import status as status_verb
from stallguard.cli.live_runs import ask
from stallguard.errors import StallguardError
from stallguard.report import document, terminal_page, top_screen
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
COLUMNS, LINES = 100, 35  # of a picture, at most
EVERY = 0.25  # seconds between two questions
POSSIBLE_STALL = "suspect"  # the detector's state that `top` is drawn in
ORANGE, GREY = (201, 92, 0), (110, 119, 129)  # readable on white
THEME = TerminalTheme(
    (255, 255, 255), (31, 35, 40),
    [(31, 35, 40), ORANGE, (26, 127, 55), ORANGE, (9, 105, 218), (130, 80, 223), (27, 124, 131), GREY],
)  # fmt: skip
# Removed, because a browser would load the font from the network.
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}(?=\s*(?:@font-face|\.))", re.DOTALL)


def main() -> int:
    """Run the training, draw both pictures; return the exit code."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        os.environ["STALLGUARD_HOME"] = str(Path(place, "home"))
        project = Path(place, "project")
        project.mkdir()
        shutil.copy2(rehearsal.TRAIN, project)
        settings = [word for key, value in rehearsal.KINDS["op"].items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, *settings, "train.py"]
        process = subprocess.Popen(command, cwd=project)
        try:
            seen = watched(process)
        finally:
            process.terminate()
            process.wait()
        run = list_runs()[-1]
        if process.returncode or seen is None:
            print("pictures: the run did not stall or did not finish", file=sys.stderr)
            return 1
        draw("top", [seen], "stallguard top")
        draw("report", terminal_page.blocks(document.make(run, os.environ), COLUMNS), "stallguard report")
    return 0


def watched(process: subprocess.Popen[bytes]) -> RenderableType | None:
    """Ask the run for its status until it ends; return the last screen of `top` that shows a possible stall."""
    last, samples = None, list[top_screen.Sample]()
    while process.poll() is None:
        time.sleep(EVERY)
        for run in list_runs():
            snapshot = status(run)
            samples += [top_screen.sample(snapshot)] if snapshot else []
            if snapshot and snapshot["judgement"].get("step") == POSSIBLE_STALL:
                title, rows = status_verb.lines(run, [])[0], status_verb.live_rows(run, snapshot)
                last = top.drawn(top_screen.run_lines(title, rows, snapshot, samples, "", (COLUMNS, LINES)))
    return last


def status(run: RunDir) -> dict[str, Any] | None:
    """Return the status of a run; None if it does not answer."""
    if run_files.state(run) != "running":
        return None
    try:
        return ask(run, "status")
    except StallguardError:
        return None  # it starts, or it has just ended


def draw(name: str, blocks: Iterable[RenderableType], title: str) -> None:
    """Write one picture: the first lines of `blocks`."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    lines = console.render_lines(Group(*blocks), pad=False)
    console.print(Segments(segment for line in lines[:LINES] for segment in (*line, Segment.line())), end="")
    path = IMAGES / f"{name}.svg"
    text = console.export_svg(title=title, theme=THEME, unique_id=name)
    path.write_text(WEB_FONT.sub("", text), "utf-8")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())

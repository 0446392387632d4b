"""No file of the project names a place of one machine, or leaves work for later."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The character classes keep this file from finding itself.
PATTERNS = {
    "a place of one machine": re.compile(r"(?<![\w.~$}])/(?:wor[k]|roo[t]|tmp/env[s])/"),
    "unfinished work": re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b"),
}
BINARY = {".png", ".ico", ".gz", ".page"}
OTHERS = ("LICENSE", "stallguard/report/assets/", "tests/recordings/")  # texts that are not ours


def files() -> list[str]:
    """Return the files of the project, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if not name.startswith(OTHERS) and Path(name).suffix not in BINARY]


def complaints(name: str) -> list[str]:
    """Return what is wrong in one file."""
    try:
        lines = (ROOT / name).read_text("utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return []  # deleted but still listed, or not a text
    return [
        f"{name}:{number}: {what}: {match[0]}"
        for number, line in enumerate(lines, 1)
        for what, pattern in PATTERNS.items()
        if (match := pattern.search(line))
    ]


def main() -> int:
    """Print what is wrong; return the exit code."""
    wrong = [words for name in files() for words in complaints(name)]
    for words in wrong:
        print(words)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

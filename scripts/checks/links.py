"""Links between the project's Markdown files: each leads to a file that exists, and to a heading in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CODE = re.compile(r"^```.*?^```|(?<=\n\n)(?: {4}[^\n]*\n|\n(?= {4}))+", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)  # https:, mailto:
LINKED = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def without_code(text: str) -> str:
    """Return a Markdown text without its blocks of code; lines stay where they are."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a file's headings, as the usual renderers name them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in HEADING.findall(without_code(text)):
        words = LINKED.sub(r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken(path: Path, root: Path) -> Iterator[str]:
    """Yield what is wrong with the relative links of the Markdown file at `path`."""
    text = path.read_text("utf-8")
    for match in LINK.finditer(without_code(text)):
        if ELSEWHERE.match(match[1]):
            continue
        file, _, anchor = match[1].partition("#")
        target = path.parent / file if file else path
        place = f"{path.relative_to(root)}: {match[1]}"
        if not target.exists():
            yield f"{place}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text("utf-8")):
            yield f"{place}: there is no such heading"

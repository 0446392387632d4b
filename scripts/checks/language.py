"""No text of the project uses a word of WORDS: texts use the terms of the field, and no metaphor.

Reads Markdown files, shell scripts, and the comments, docstrings and string literals of Python modules in stallguard/
and scripts/.  Text between backticks, blocks of code and generated parts of a Markdown file are skipped, and so are
identifiers: a string that is a single word, and words with an underscore or a dot beside them.

language_allowed.txt lists how often a file can still use a word.  The check fails if a file uses one more often, and
also if it uses one less often: `--write` then lowers the numbers.  It never raises the total of a word, so the list
can only shrink; a file that was moved takes its numbers along.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("language_allowed.txt")
# Each word with its other forms, and what to write instead.
WORDS = {
    "may not": (r"may\s+not", "must not, does not, cannot: `may not` reads as `might not`"),
    "hear": (r"hear(?:s|d|ing)?", "receive"),
    "tell": (r"tell(?:s|ing)?|told|untold", "report, say, show, pass"),
    "guest": (r"guests?", "probe"),
    "in silence": (r"in\s+silence", "without a message"),
    "nobody": (r"nobody", "no user, no process, never"),
    "somebody": (r"somebody|someone|anybody|anyone", "a user, a process"),
    "whatever": (r"whatever|whoever|whichever", "each, every, any"),
    "obey": (r"obey(?:s|ed)?", "follow"),
    "feel": (r"feels?|felt", "count, detect"),
    "stranger": (r"strangers?", "another process, foreign code"),
    "heed": (r"heed(?:s|ed)?", "apply"),
}
PATTERNS = {
    word: re.compile(rf"(?<![\w.-])(?:{forms})(?![\w-]|[.(]\w)", re.IGNORECASE) for word, (forms, _) in WORDS.items()
}
CODE = re.compile(r"`[^`\n]*`")
GENERATED = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+")
IDENTIFIER = re.compile(r"\w+")
NOT_OURS = ("tests/recordings/", "stallguard/report/assets/")
THIS = Path(__file__).relative_to(ROOT).as_posix()  # it names the words


class Found(NamedTuple):
    """One use of a word."""

    file: str
    line: int
    word: str


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each block of comments and each string of a module."""
    yield from comments(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not IDENTIFIER.fullmatch(node.value):
            yield node.lineno, node.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each block of comments, whose lines follow each other."""
    first, block = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != first + len(block):
            if block:
                yield first, "\n".join(block)
            first, block = token.start[0], []
        block.append(token.string.lstrip("# "))
    if block:
        yield first, "\n".join(block)


def markdown_text(source: str) -> str:
    """Return a Markdown file with blanks in the place of code and generated parts; lines stay where they are."""
    for pattern in (GENERATED, FENCED, INDENTED):
        source = pattern.sub(lambda match: "\n" * match[0].count("\n"), source)
    return source


def texts(file: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of what a reader reads in a file."""
    if file.endswith(".py"):
        yield from python_texts(source)
    else:
        yield 1, markdown_text(source) if file.endswith(".md") else source


def uses(file: str, source: str) -> Iterator[Found]:
    """Yield each use of a word in a file."""
    for line, text in texts(file, source):
        prose = CODE.sub(lambda match: " " * len(match[0]), text)
        for word, pattern in PATTERNS.items():
            for match in pattern.finditer(prose):
                yield Found(file, line + prose.count("\n", 0, match.start()), word)


def is_read(file: str) -> bool:
    """Return if a file is checked."""
    if file == THIS or file.startswith(NOT_OURS):
        return False
    if file.endswith(".md"):
        return True
    return file.startswith(("stallguard/", "scripts/")) and (file.endswith(".py") or "." not in Path(file).name)


def files() -> list[str]:
    """Return the files that are checked, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [file for file in sorted(set(listed)) if is_read(file) and (ROOT / file).is_file()]


def read_allowed(text: str) -> Counter[tuple[str, str]]:
    """Return how often each (file, word) is allowed: lines `file number word`."""
    rows = (line.split(" ", 2) for line in text.splitlines() if line and not line.startswith("#"))
    return Counter({(file, word): int(number) for file, number, word in rows})


def write_allowed(counts: Counter[tuple[str, str]]) -> str:
    """Return the list as text."""
    head = "# How often a file can still use a word.  `scripts/checks/language.py --write` lowers it; see there.\n"
    return head + "".join(f"{file} {number} {word}\n" for (file, word), number in sorted(counts.items()))


def totals(counts: Counter[tuple[str, str]]) -> Counter[str]:
    """Return the number of uses of each word."""
    summed: Counter[str] = Counter()
    for (_, word), number in counts.items():
        summed[word] += number
    return summed


def raised(counts: Counter[tuple[str, str]], allowed: Counter[tuple[str, str]]) -> list[str]:
    """Return the words that are used more often in all than the list allows."""
    before, now = totals(allowed), totals(counts)
    return [word for word in WORDS if now[word] > before[word]]


def complaints(found: list[Found], allowed: Counter[tuple[str, str]]) -> list[str]:
    """Return what is wrong, compared with the list."""
    counts = Counter((use.file, use.word) for use in found)
    more = [
        f"{use.file}:{use.line}: {use.word!r}; write: {WORDS[use.word][1]}"
        for use in found
        if counts[use.file, use.word] > allowed[use.file, use.word]
    ]
    less = [pair for pair, number in sorted(allowed.items()) if counts[pair] < number]
    return more + [f"{file}: {word!r} is used less often: language.py --write lowers the list" for file, word in less]


def main(*, write: bool) -> int:
    """Compare with the list, or lower it; return the exit code."""
    found = [use for file in files() for use in uses(file, (ROOT / file).read_text("utf-8"))]
    counts = Counter((use.file, use.word) for use in found)
    allowed = read_allowed(LIST.read_text("utf-8"))
    if write and not raised(counts, allowed):
        LIST.write_text(write_allowed(counts), "utf-8")
        allowed = counts
    wrong = complaints(found, allowed)
    for words in wrong:
        print(words)
    print(f"{allowed.total()} uses in {len({file for file, _ in allowed})} files are not rewritten yet")
    print(", ".join(f"{word} {number}" for word, number in totals(allowed).most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))

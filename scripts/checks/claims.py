"""Each sentence about macOS in README.md and docs/ has a row in tests/live/claims.toml that names what proves it.

The exit code is 1 if a sentence has no row, a row no sentence, if a proof that is named does not exist, or if a
sentence without a proof lacks the mark † (or one with a proof has it).  `--table` prints all claims, and their number
by kind of proof; `--list` the sentences without a row.

Kinds of proof, strongest first: `test:FILE::NAME`, one of ours that fails if our code does not do what the claim says;
`bench:NAME`, which makes the figure; `recording:FILE`, what a Mac printed (tests/recordings/macos); `source:ADDRESS`, a
public source; `walk:NAME`, a row of `scripts/live` (* stands for any letters), which is a question until the walk was
made; `nothing`.

Left out is what is generated: docs/cli.md and docs/journal.md from the code, docs/known-problems.md from public
reports that it names, and what stands between markers.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/live/claims.toml"
GENERATED = ("docs/cli.md", "docs/journal.md", "docs/known-problems.md")
KINDS = ("test", "bench", "recording", "source", "walk", "nothing")
MARK = "†"
LEGEND = f"{MARK}: not tried on a Mac."
# What a sentence about macOS says: the system, its hardware, its tools and the parts of it that stallguard uses.
WORDS = re.compile(
    r"\b(macOS|Macs?|Apple|Metal|launchd|launchctl|pmset|caffeinate|ioreg|Rosetta|MLX|MPS|osascript|Script Editor"
    r"|Library/\w+|iCloud|TCC|APFS|lid|battery|census|vm\.\w+)\b|tensorflow-metal|`metal`|wait sites"
)
_END = re.compile(rf"(?<=[.!?{MARK}])\s+(?=[`*(\[A-Z])|(?<=[.!?]\*\*)\s+")
_MARKED = re.compile(rf"{MARK}(?:$| \|)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) +")
_BETWEEN = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)


class Claim(NamedTuple):
    """A row of the table.  `text`: a part of the sentence."""

    text: str
    where: str
    proof: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The strongest kind of its proofs."""
        kinds = {one.partition(":")[0] for one in self.proof}
        return next((kind for kind in KINDS if kind in kinds), "")


def claims(root: Path) -> list[Claim]:
    """Return the rows of the table."""
    rows = tomllib.loads((root / TABLE).read_text("utf-8"))["claim"]
    return [Claim(" ".join(row["text"].split()), row["where"], tuple(row["proof"])) for row in rows]


def blocks(text: str) -> Iterator[str]:
    """Yield headings, paragraphs, items, rows of tables (all as one if the head names macOS) and lines of code."""
    paragraph: list[str] = []
    table: list[str] = []
    for line in [*_BETWEEN.sub("", text).splitlines(), ""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            yield from [" ".join(table)] if WORDS.search(table[0]) else table[2:]
            table = []
        if not line.strip() or _ITEM.match(line) or line.startswith(("    ", "#")):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith(("    ", "#")):
            yield line
        else:
            paragraph.append(line)
    yield " ".join(paragraph)


def sentences(text: str) -> Iterator[str]:
    """Yield what a document says about macOS, sentence by sentence; a row of a table and a line of code are one each.

    A sentence that follows one about macOS in its paragraph is about it too, unless it begins with Linux; so is each
    below a heading that names it.
    """
    below = False
    for block in blocks(text):
        one, about = " ".join(block.split()), below
        if one.startswith("#"):
            below = bool(WORDS.search(one))
            continue
        for sentence in [one] if one.startswith("|") else _END.split(one):
            about = bool(WORDS.search(sentence)) or (about and not sentence.startswith(("Linux", "On Linux")))
            if about and sentence not in ("", LEGEND):
                yield sentence


def said(root: Path) -> list[tuple[str, str]]:
    """Return (document, sentence) of all that the documents say about macOS."""
    names = ["README.md", *sorted(f"docs/{path.name}" for path in (root / "docs").glob("*.md"))]
    return [
        (name, one) for name in names if name not in GENERATED for one in sentences((root / name).read_text("utf-8"))
    ]


def missing(proof: str, root: Path) -> str:
    """Return why a proof is none; empty if it exists."""
    kind, _, what = proof.partition(":")
    if kind == "test":
        file, _, name = what.partition("::")
        text = (root / file).read_text("utf-8") if (root / file).is_file() else ""
        return "" if re.search(rf"^ *(async )?def {re.escape(name)}\(", text, re.MULTILINE) else "there is no such test"
    if kind == "bench":
        return "" if (root / "scripts/benches" / f"{what}.py").is_file() else "there is no such bench"
    if kind == "recording":
        return "" if (root / "tests/recordings/macos" / what).is_file() else "there is no such recording"
    if kind == "walk":
        rows = walk_rows(root)
        return "" if any(fnmatchcase(row, what) or fnmatchcase(what, row) for row in rows) else "no walk has such a row"
    if kind == "source":
        return "" if what.startswith("https://") else "it is no address"
    return "" if proof == "nothing" else "there is no such kind of proof"


def walk_rows(root: Path) -> set[str]:
    """Return the names of the rows of scripts/live, * for a part that varies: they are texts in its modules."""
    modules = [path for path in (root / "scripts/walks/mac").glob("*.py") if path.name != "checks.py"]
    trees = [ast.parse(path.read_text("utf-8")) for path in modules]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    made = {"".join(str(one.value) if isinstance(one, ast.Constant) else "*" for one in text.values) for text in texts}
    plain = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return plain | {name for name in made if len(name.replace("*", "")) > 3}  # noqa: PLR2004 - else it fits any name


def faults(found: Sequence[tuple[str, str]], rows: Sequence[Claim], root: Path) -> Iterator[str]:
    """Yield what is wrong with the table, or with the marks of the sentences."""
    for where, sentence in found:
        its = [row for row in rows if row.where == where and row.text in sentence]
        if not its:
            yield f"{where}: no row of {TABLE} has this sentence: {sentence}"
        elif (marked := bool(_MARKED.search(sentence))) != any(row.kind == "nothing" for row in its):
            what = "a row has a proof of it" if marked else f"nothing proves it, and it lacks the mark {MARK}"
            yield f"{where}: {what}: {sentence}"
    for row in rows:
        if not any(row.where == where and row.text in sentence for where, sentence in found):
            yield f"{row.where}: it does not say: {row.text}"
        for proof in row.proof:
            if why := missing(proof, root):
                yield f"{row.where}: {proof}: {why}"
    for where in {row.where for row in rows if row.kind == "nothing"}:
        if LEGEND not in (root / where).read_text("utf-8"):
            yield f"{where}: it does not say what {MARK} means: {LEGEND}"


def summary(rows: Sequence[Claim]) -> str:
    """Return how many claims there are, by the strongest kind of their proofs, and how many ask the walk too."""
    counts = Counter(row.kind for row in rows)
    walked = sum(any(proof.startswith("walk:") for proof in row.proof) for row in rows)
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in KINDS)
    return f"{len(rows)} claims about macOS: {kinds}; of {walked} the walk asks"


def main() -> int:
    """Print what is wrong, and what is asked for; return the exit code."""
    found, rows = said(ROOT), claims(ROOT)
    if "--list" in sys.argv:
        found_rows = {(row.where, sentence) for row in rows for where, sentence in found if row.text in sentence}
        print("\n".join(f"{where}: {one}" for where, one in found if (where, one) not in found_rows))
    if "--table" in sys.argv:
        print("\n".join(f"{row.kind:<9}  {row.where}: {row.text}\n{'':11}{', '.join(row.proof)}" for row in rows))
    wrong = list(faults(found, rows, ROOT))
    print("\n".join([*wrong, summary(rows)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

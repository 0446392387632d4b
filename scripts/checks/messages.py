"""All that a run says is in one place: stallguard/report/narrative.py.

Four rules, over the modules of stallguard/:

1. A name that Announce(...), announce(...) or sentence(...) is called with is an entry of the narrative, and each entry
   is used by some module.
2. No sentence is put together in such a call: its facts are names, numbers and single words, so a string in it has two
   words at most.
3. Nothing but the modules of PRINTERS prints.
4. A number and its noun agree: "{count} runs" is written counted(count, "run") (core.text), or in the narrative
   {count:run|runs}.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from stallguard.report import narrative

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ROOT / "stallguard"
ANNOUNCERS = ("Announce", "announce", "sentence")
KNOWN = {*narrative.MESSAGES, *narrative.STORY}
WORDS = 2  # of a fact
THINGS = (
    "attempts batches crashes days epochs errors events files holders hours incidents jobs machines minutes "
    "processes restarts rows runs stalls steps threads trainings trials"
).split()
FOLLOWS = re.compile(rf"\s(?:{'|'.join(THINGS)})\b")
AFTER_A_FACT = re.compile(rf"\{{\w+\}}\s(?:{'|'.join(THINGS)})\b")
# The command line, and the note of its verbs that a name fits several runs; child processes that answer on their
# standard output; the report on a terminal; the script of a drill; the cell of a notebook.
PRINTERS = (
    "cli/",
    "storage/paths.py",
    "doctor/inside/",
    "fleet/store/bucket_access.py",
    "report/terminal_page.py",
    "drills/",
    "notebook.py",
    "supervisor/beside_kernel.py",
)


def called(call: ast.Call) -> str:
    """Return the name of what is called, without what it belongs to."""
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def names(node: ast.expr) -> Iterator[str]:
    """Yield each name that an expression can be: of `"a" if x else "b"` both."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from names(node.body)
        yield from names(node.orelse)


def sentences(call: ast.Call) -> Iterator[str]:
    """Yield the strings in the facts of a call that have more than WORDS words."""
    for argument in call.args[1:]:
        for node in ast.walk(argument):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > WORDS:
                yield node.value


def prints(call: ast.Call) -> bool:
    """Return whether a call writes to standard output or error."""
    text = ast.unparse(call.func)
    return text in ("print", "click.echo", "sys.stdout.write", "sys.stderr.write", "console.print")


def uncounted(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of strings in which a plural follows a number that can be one.

    A constant (ROOM) is known to be more than one, and so is a number behind a condition on it.
    """
    known = {
        id(node)
        for choice in ast.walk(tree)
        if isinstance(choice, ast.IfExp) and isinstance(choice.test, ast.Compare)
        for node in ast.walk(choice)
    }
    for node in ast.walk(tree):
        if id(node) in known:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and AFTER_A_FACT.search(node.value):
            yield node.lineno
        for value, words in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
            if isinstance(value, ast.FormattedValue) and isinstance(words, ast.Constant):
                is_constant = isinstance(value.value, ast.Name) and value.value.id.isupper()
                if FOLLOWS.match(str(words.value)) and not is_constant:
                    yield value.lineno


def breaches(place: str, tree: ast.Module) -> Iterator[str]:
    """Yield what breaks rules 1 and 2 in a module, and rule 3.  `place`: its path in stallguard/."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        here = f"stallguard/{place}:{call.lineno}"
        if called(call) in ANNOUNCERS and call.args:
            unknown = [name for name in names(call.args[0]) if name not in KNOWN]
            yield from (f"{here}: the narrative has no message {name!r}" for name in unknown)
            yield from (f"{here}: a sentence outside of the narrative: {text!r}" for text in sentences(call))
        if prints(call) and not place.startswith(PRINTERS):
            yield f"{here}: prints; a message is announced"


def main() -> int:
    """Print what breaks a rule; return the exit code."""
    wrong: list[str] = []
    strings: set[str] = set()
    for path in sorted(PRODUCT.rglob("*.py")):
        place, tree = path.relative_to(PRODUCT).as_posix(), ast.parse(path.read_text("utf-8"))
        wrong += [f"stallguard/{place}:{line}: a number and its noun: core.text.counted" for line in uncounted(tree)]
        if place == "report/narrative.py":  # its tables are no use of a message, its functions are
            tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        strings |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        wrong += breaches(place, tree)
    wrong += [f"stallguard/report/narrative.py: no module uses {name!r}" for name in sorted(KNOWN - strings)]
    print("\n".join(wrong) or f"{len(KNOWN)} messages in one place")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Small is a rule: functions, modules, and a docstring for every module.

The modules of the product, its tests and its scripts; of the product the functions too.  A function's size is the
number of its lines from `def` to its end; its docstring and blank lines do not count.

A private helper with one caller has to say more than its body would, so there cannot be many of them: trio has 3 % of
its functions, httpcore 7 %.  Counted are private functions whose name their module uses once, in a call; an entry of a
table or an argument is no call.  `--helpers` prints them.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NINE_OF_TEN, LONGEST, MODULE = 30, 60, 600  # lines
HELPERS = 12  # percent of the functions: private, called once

Function = ast.FunctionDef | ast.AsyncFunctionDef


def size(function: Function, lines: list[str]) -> int:
    """Return the lines of a function that a reader has to read as code."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    skipped = range(first.lineno, (first.end_lineno or 0) + 1) if documented else range(0)
    own = range(function.lineno, (function.end_lineno or 0) + 1)
    return sum(1 for number in own if number not in skipped and lines[number - 1].strip())


def functions(tree: ast.Module) -> Iterator[Function]:
    """Yield every function of a module, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def called_once(tree: ast.Module) -> Iterator[Function]:
    """Yield the private functions of a module that it calls in one place and uses nowhere else."""
    uses: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            uses[name_of(node)] += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            calls[name_of(node.func)] += 1
    for function in functions(tree):
        name = function.name
        if name.startswith("_") and not name.endswith("__") and uses[name] == calls[name] == 1:
            yield function


def name_of(node: ast.Name | ast.Attribute) -> str:
    """Return the name that a use of a function or method ends with."""
    return node.id if isinstance(node, ast.Name) else node.attr


def look(path: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the (size, place) of a module's functions, and what is wrong with the module itself."""
    text = path.read_text("utf-8")
    tree, lines, name = ast.parse(text), text.splitlines(), path.relative_to(ROOT)
    wrong = [] if ast.get_docstring(tree) or not text.strip() else [f"{name}: no docstring"]
    wrong += [f"{name}: {len(lines)} lines, {MODULE} allowed"] if len(lines) > MODULE else []
    return [(size(f, lines), f"{name}:{f.lineno} {f.name}") for f in functions(tree)], wrong


def verdict(sizes: list[tuple[int, str]]) -> list[str]:
    """Return what is wrong with all functions together."""
    ordered = sorted(sizes)
    median, most = ordered[len(ordered) // 2][0], ordered[len(ordered) * 9 // 10][0]
    wrong = [f"{place}: {lines} lines, {LONGEST} allowed" for lines, place in ordered if lines > LONGEST]
    wrong += [f"nine functions of ten: {most} lines, {NINE_OF_TEN} allowed"] if most > NINE_OF_TEN else []
    print(f"{len(ordered)} functions: median {median}, nine of ten {most}, longest {ordered[-1][0]} lines")
    return wrong


def too_many_helpers(functions: int, *, listed: bool) -> list[str]:
    """Return what is wrong with the number of private helpers that have one caller."""
    helpers = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for path in sorted((ROOT / "stallguard").rglob("*.py"))
        for function in called_once(ast.parse(path.read_text("utf-8")))
    ]
    if listed:
        print("\n".join(helpers))
    percent = 100 * len(helpers) / functions
    print(f"{len(helpers)} private helpers with one caller: {percent:.1f} % of the functions")
    return [f"helpers with one caller: {percent:.1f} %, {HELPERS} allowed"] if percent > HELPERS else []


def main() -> int:
    """Print what is wrong; return the exit code."""
    looked = {path: look(path) for path in sorted(ROOT.glob("[!.]*/**/*.py"))}
    wrong = [words for _, found in looked.values() for words in found]
    product = [sizes for path, (sizes, _) in looked.items() if path.is_relative_to(ROOT / "stallguard")]
    wrong += verdict([entry for sizes in product for entry in sizes])
    wrong += too_many_helpers(sum(map(len, product)), listed="--helpers" in sys.argv)
    for words in wrong:
        print(words)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

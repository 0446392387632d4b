"""Tests mirror the tree: the test of `stallguard/a/b.py` is `tests/a/test_b.py`, or the files of a folder `tests/a/b`.

Counted are the modules that define a function and have no such test.  Tests of what several modules do together have
names of their own, so the number does not become zero; but it can only sink: lower MOST when it has sunk.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 250  # modules without a test that is found by name


def tests_of(module: Path) -> tuple[str, str]:
    """Return the test file and the folder of tests of a module; each path begins below its own root.

    A leading underscore is no part of the name, and a package is tested by `test_` and its name inside of its folder.
    """
    folder = module.parent
    name = folder.name if module.stem == "__init__" else module.stem.lstrip("_")
    return f"{folder / f'test_{name}.py'}", f"{folder / name}"


def untested(product: Path, tests: Path) -> Iterator[Path]:
    """Yield the modules of `product` that define a function and have no test of their name in `tests`."""
    for path in sorted(product.rglob("*.py")):
        module = path.relative_to(product)
        tree = ast.parse(path.read_text("utf-8"))
        if not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree)):
            continue
        file, folder = tests_of(module)
        if not (tests / file).exists() and not any((tests / folder).glob("test_*.py")):
            yield module


def main() -> int:
    """Print the number, and with `--list` the modules; return the exit code."""
    found = list(untested(ROOT / "stallguard", ROOT / "tests"))
    if "--list" in sys.argv:
        print("\n".join(map(str, found)))
    print(f"{len(found)} modules without a test that is found by name, at most {MOST}")
    return 1 if len(found) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())

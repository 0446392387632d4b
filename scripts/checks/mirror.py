"""Tests mirror the tree: the test of `stallguard/a/b.py` is `tests/a/test_b.py`, or the files of a folder `tests/a/b`.

One of several is `tests/a/test_b_ASPECT.py`.

Counted are the modules that define a function and have no such test.  Tests of what several modules do together have
names of their own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 0  # modules without a test that is found by name


def tests_of(module: Path) -> tuple[str, str, str]:
    """Return patterns of the paths of a module's tests; each path begins below its own root.

    A leading underscore is no part of the name, and a package is tested by `test_` and its name inside of its folder.
    """
    folder = module.parent
    name = folder.name if module.stem == "__init__" else module.stem.lstrip("_")
    return f"{folder / f'test_{name}.py'}", f"{folder / f'test_{name}_*.py'}", f"{folder / name}/test_*.py"


def untested(product: Path, tests: Path) -> Iterator[Path]:
    """Yield the modules of `product` that define a function and have no test of their name in `tests`."""
    modules = sorted(path.relative_to(product) for path in product.rglob("*.py"))
    exact = {tests / tests_of(module)[0] for module in modules}
    for module in modules:
        tree = ast.parse((product / module).read_text("utf-8"))
        if not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree)):
            continue
        found = {one for pattern in tests_of(module) for one in tests.glob(pattern)}
        if not found - (exact - {tests / tests_of(module)[0]}):
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

"""What the rest of stallguard knows of a fleet."""

from __future__ import annotations

import ast
import inspect

from stallguard.fleet import seam


def test_what_type_checkers_read_is_what_is_imported():
    block = next(node for node in ast.parse(inspect.getsource(seam)).body if isinstance(node, ast.If))
    read = {name.name: node.module for node in block.body for name in node.names if isinstance(node, ast.ImportFrom)}
    assert read == seam._HOMES


def test_each_name_is_there():
    for name in seam._HOMES:
        assert getattr(seam, name) is not None


def test_another_name_is_not():
    assert not hasattr(seam, "worker_process")

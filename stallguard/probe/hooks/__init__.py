"""The hooks: wrappers of library functions that record the training's progress.

Each module exports targets(context), as context.py describes.  If a library's version lacks a function, its hook is
missing from the hello, and the others work.
"""

from __future__ import annotations

from . import keras, python_functions, saving, tensorflow, torch

FAMILIES = (keras, saving, tensorflow, python_functions, torch)

"""The hooks: wrappers of library functions that record the training's progress.

Each module exports targets(context), as context.py describes.  If a library's version lacks a function, its hook is
missing from the hello, and the others work.
"""

from __future__ import annotations

from . import (
    keras_batches,
    keras_callbacks,
    keras_optimizers,
    python_functions,
    saving,
    tf_data,
    tf_eager,
    tf_function,
    tf_session,
    torch_loops,
)

FAMILIES = (
    keras_callbacks,
    keras_batches,
    keras_optimizers,
    saving,
    tf_function,
    tf_eager,
    tf_data,
    python_functions,
    tf_session,
    torch_loops,
)

"""The hooks: which functions of which library say what about the training.

Each module exports targets(context) as context.py describes.  A hook that a version lacks is simply missing
from the hello; the others go on.
"""

from __future__ import annotations

from . import (
    keras_batches,
    keras_callbacks,
    keras_optimizers,
    keras_sizes,
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
    keras_sizes,
    saving,
    tf_function,
    tf_eager,
    tf_data,
    tf_session,
    torch_loops,
)

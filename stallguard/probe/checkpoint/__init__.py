"""Checkpoint generations of every fit, and exact resume, without editing the script.

Loaded only if the supervisor names a folder for them (settings.checkpoints).  Until Keras is imported, nothing but
this module is loaded.  Standard library only, Python 3.9 grammar; numpy and the framework are those that the user's
process has imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..context import Context
    from .fit_session import CheckpointSession


def begin(context: Context) -> CheckpointSession:
    """Return what the patches of the frameworks get."""
    from .fit_session import CheckpointSession

    return CheckpointSession(context)

"""Counts each outermost Session.run of a TensorFlow 1 program as a beat."""

from __future__ import annotations

from ..beats import SESSION
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets


def targets(context: Context) -> Targets:
    """Return the module that defines the session."""

    def opens(*args: Any, **kwargs: Any) -> Optional[int]:
        return context.beats.call_begins() if context.beats.may_open() else None

    def closes(before: int, result: Any) -> None:
        context.beats.call_ends(before, SESSION)

    def patch(module: Any) -> None:
        if context.wrap(module.BaseSession, "run", around(context, opens, closes, context.beats.call_failed)):
            context.hook_installed("session")

    return {"tensorflow.python.client.session": patch}

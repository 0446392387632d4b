"""Hides the GPU in an attempt that must run on the CPU."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from .context import Context, Targets


def hide(environment: MutableMapping[str, str]) -> None:
    """Hide the GPU by environment variables: CUDA's for TensorFlow and torch, the platform for JAX."""
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    environment["JAX_PLATFORMS"] = "cpu"


def targets(context: Context) -> Targets:
    """Return the patch of TensorFlow: only its own call hides pluggable devices (Metal)."""

    def patch(module: Any) -> None:
        module.config.set_visible_devices([], "GPU")
        context.note("device", "the GPU is hidden from TensorFlow for this attempt")

    return {"tensorflow": patch}

"""What is quoted from an output is bounded, and shows where something was left out."""

from __future__ import annotations


def cut(text: str, most: int) -> str:
    """Return `text`, or its first `most` - 1 characters and an ellipsis where it has more than `most`."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"

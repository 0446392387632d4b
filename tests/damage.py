"""Damage to a file of random bytes: to write a fixed byte over the last one changes nothing in one of 256 runs."""

from __future__ import annotations

from pathlib import Path


def change_last_byte(path: Path) -> None:
    """Give a file another last byte, whatever it was."""
    *rest, last = path.read_bytes()
    path.write_bytes(bytes([*rest, last ^ 1]))

"""Lightning under its former name: its record is that of lightning.py."""

from __future__ import annotations

from . import lightning

LIBRARY = lightning.library("pytorch_lightning", "pytorch_lightning")

"""The parts `sick` and `healthy`: cases are started several at a time, judged, and put into a table."""

from __future__ import annotations

from gpu_zoo.options import Part

PARTS: dict[str, Part] = {}

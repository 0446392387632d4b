# ruff: noqa: F401
"""All rows: importing their modules adds them."""

from __future__ import annotations

from . import conditions, disks, fault, keras_fits, processes, programs, signals, sockets, supervisor, terminals

FAULTS: tuple[fault.Fault, ...] = tuple(fault.FAULTS)

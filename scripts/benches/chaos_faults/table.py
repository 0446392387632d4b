"""All rows, in the order in which they are printed."""

from __future__ import annotations

from . import conditions, disks, keras_fits, processes, programs, signals, sockets, supervisor, terminals
from .fault import Fault

FAULTS: tuple[Fault, ...] = tuple(
    row
    for kind in (supervisor, conditions, sockets, disks, programs, signals, processes, terminals, keras_fits)
    for row in kind.TABLE.rows
)

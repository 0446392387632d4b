"""Finds the threads of a notebook's kernel: they poll sockets while the cell trains, independently of the training.

papermill, nbconvert and Jupyter run a script's cells in the main thread of a kernel.  If the kernel's own threads were
counted, every deadlock would look like a wait for the network.  Must not import anything: the sender's thread calls it.
"""

from __future__ import annotations

import sys

KERNELS = ("ipykernel", "IPython")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def service_threads() -> list[int]:
    """Return the native ids of the kernel's own threads; none outside of a kernel."""
    return [thread.native_id for thread in _of_kernel() if thread.native_id]


def service_idents() -> list[int]:
    """Return the same threads as Python numbers them (sys._current_frames)."""
    return [thread.ident for thread in _of_kernel() if thread.ident]


def _of_kernel() -> list[Any]:
    threading = sys.modules.get("threading")
    if "ipykernel" not in sys.modules or threading is None:
        return []
    living = list(threading._active.values())  # not enumerate(): a stuck thread can hold its lock
    return [thread for thread in living if _is_of_kernel(thread)]


def _is_of_kernel(thread: object) -> bool:
    for owner in (type(thread), getattr(thread, "_target", None)):
        if str(getattr(owner, "__module__", "")).partition(".")[0] in KERNELS:
            return True
    return False

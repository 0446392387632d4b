"""The threads of a notebook's kernel: it polls sockets while the cell trains, which says nothing about the training.

papermill, nbconvert and Jupyter run a script's cells in the main thread of a kernel.  Counted with the others, its own
threads would make every deadlock look like a wait for the network.  Must not import anything: the sender's thread asks.
"""

from __future__ import annotations

import sys

KERNELS = ("ipykernel", "IPython")


def service_threads() -> list[int]:
    """Return the system's numbers of the kernel's own threads; none outside of a kernel."""
    threading = sys.modules.get("threading")
    if "ipykernel" not in sys.modules or threading is None:
        return []
    living = list(
        threading._active.values()
    )  # not enumerate(): its lock may be held by a thread that is stuck
    return [thread.native_id for thread in living if _is_of_kernel(thread) and thread.native_id]


def _is_of_kernel(thread: object) -> bool:
    for owner in (type(thread), getattr(thread, "_target", None)):
        if str(getattr(owner, "__module__", "")).partition(".")[0] in KERNELS:
            return True
    return False

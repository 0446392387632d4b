"""Finds the runtimes of OpenMP that this process has loaded.

Of two of LLVM's in one process, the threads of one can wait at a barrier for ever, at an idle processor
[gh:pytorch/pytorch/issues/193520].  Which are installed says little: the process loads some of them.  Linux lists them
in /proc/self/maps (0.6 ms with torch), macOS through dyld, which `ctypes` asks; it is not imported here, because this
runs in the sender's thread, but torch and numpy have it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

LLVMS = ("libomp.", "libiomp5.")  # LLVM's and Intel's, which is the same code
NAMES = (*LLVMS, "libgomp.", "libgomp-")
PARTS = 3  # of a path, which show whose copy it is


def clash() -> str:
    """Return the runtimes in words, if there are several and one of them is LLVM's; "" if not, or not known."""
    try:
        found = {path for path in images() if path.rpartition("/")[2].startswith(NAMES)}
    except Exception:
        return ""
    if len(found) == 1 or not any(path.rpartition("/")[2].startswith(LLVMS) for path in found):
        return ""
    return " and ".join(sorted("/".join(path.split("/")[-PARTS:]) for path in found))


def images() -> list[str]:
    """Return the paths of the libraries that are loaded; it can raise."""
    if sys.platform != "darwin":
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return [line[line.index("/") :].rstrip("\n") for line in file if "/" in line]
    ctypes: Optional[Any] = sys.modules.get("ctypes")
    if ctypes is None:
        return []
    libc = ctypes.CDLL(None)
    libc._dyld_get_image_name.restype = ctypes.c_char_p
    names = [libc._dyld_get_image_name(number) for number in range(libc._dyld_image_count())]
    return [name.decode("utf-8", "replace") for name in names if name]

"""What a call of psutil may raise, beside its own errors.

On macOS 27 psutil 7.2.2 raises RuntimeError "(ipc/mig) array not large enough" for the memory of the machine (mended in
8.0 only); its C code raises OSError, and SystemError where it forgets to set an error.  No such call may end a verb or
a run: a reading that fails is a reading that is not known.
"""

from __future__ import annotations

import psutil

ERRORS = (psutil.Error, OSError, RuntimeError, SystemError, ValueError)

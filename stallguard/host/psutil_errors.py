"""What a call of psutil can raise, besides its own errors.

On macOS 27 psutil 7.2.2 raises RuntimeError "(ipc/mig) array not large enough" for the memory of the machine (fixed in
8.0); its C code raises OSError, and SystemError if it does not set an error.  No such call must end a verb or
a run: a reading that fails is not known.
"""

from __future__ import annotations

import psutil

ERRORS = (psutil.Error, OSError, RuntimeError, SystemError, ValueError)

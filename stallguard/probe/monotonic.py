"""The clock of the records: nanoseconds that stand still while the machine sleeps, as the supervisor's (host/clock.py).

On macOS `time.monotonic_ns` is that clock today (mach_absolute_time); a later Python may choose one that counts sleep,
and the training's Python is not the supervisor's.  So the clock is named there, for about 80 ns more a call
(`timeit` on a two-core Linux machine: 130 and 210 ns).
"""

import sys
import time

if sys.platform == "darwin":
    # functools itself would cost each start five milliseconds
    from _functools import partial  # type: ignore[import-not-found]

    monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_UPTIME_RAW)
else:
    from time import monotonic_ns  # CLOCK_MONOTONIC, which does not count suspend on Linux

__all__ = ["monotonic_ns"]

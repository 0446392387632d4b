"""The clock of the records: nanoseconds without the machine's sleep, as the supervisor's clock (host/clock.py).

On macOS `time.monotonic_ns` is that clock today (mach_absolute_time).  A later Python can choose one that counts sleep,
and the training's Python is not the supervisor's, so the clock is named explicitly there.  That costs about 80 ns more
a call (`timeit` on a two-core Linux machine: 130 and 210 ns).
"""

import sys
import time

if sys.platform == "darwin":
    # importing functools itself takes five milliseconds of each start
    from _functools import partial  # type: ignore[import-not-found]

    monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_UPTIME_RAW)
else:
    from time import monotonic_ns  # CLOCK_MONOTONIC, which does not count suspend on Linux

__all__ = ["monotonic_ns"]

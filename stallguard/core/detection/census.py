"""What a census, the wait sites of all threads of the tree, shows: which threads something could wake.

Linux gives one (host/linux/thread_census.py), macOS none.  This module must not judge.
"""

from __future__ import annotations

from stallguard.core.readings import Process

# Wait sites (readings.Process.census) at which something other than the tree's own threads can wake a thread.
_WAKERS = frozenset(("poll", "sock", "read", "write", "sync", "disk", "other"))
_RARE = 0.05  # share of censuses that can show fewer timers than the runtime has


def waits_outside(reading: Process) -> bool:
    """Return whether a census shows a thread that something other than the tree's own threads can wake.

    Other threads that wait with a timer aside: the runtime has some too.
    """
    # A script that sleeps in its own loop continues by itself, even if its steps sleep as well.
    sites = (site for site, threads in (reading.census or {}).items() if threads)
    return reading.main_site == "sleep" or not _WAKERS.isdisjoint(sites)


def count_timers(sites: dict[str, int]) -> int:
    """Return how many threads wait with a timer."""
    return sites.get("sleep", 0) + sites.get("timed", 0)


def own_timers(counts: dict[int, int]) -> int:
    """Return how many timers the runtime has by itself: nearly the fewest that a healthy step showed.

    `counts`: number of timers -> weight of the censuses that showed it.  Not the fewest: in 2-5 % of the censuses the
    thread of one timer runs, so a long night has such a census.  For the same reason one census is not enough, unless
    no thread ran at that moment.
    """
    rare, passed = max(1.0, _RARE * sum(counts.values())), 0
    for value in sorted(counts):
        passed += counts[value]
        if passed > rare:
            return value
    return 0

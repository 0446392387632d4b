"""Gives back the memory that a library keeps for later arrays, when the supervisor says that memory is short.

An allocator for a GPU keeps what it freed.  On unified memory that is the memory of the machine: a process whose
tensors were 6.7 GB held 72 GB, and swapped [gh:kyutai-labs/pocket-tts/issues/255].  Only the process itself can give it
back.  It changes no number; the next batch allocates anew.  So the supervisor asks at most once in some minutes
(core/caches.py), and a cache is emptied only if it is much larger than what is in use.

It is done by the thread that trains, after a batch: other threads could be in the middle of an allocation.
"""

from __future__ import annotations

from . import libraries, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import Context

CACHES = wire.COMMANDS.index("caches")
COMMAND = wire.SLOT["command"]
TIMES = 2.0  # what is held, over what is used
LEAST = 256 << 20  # bytes that are kept without use


def is_worth(held: int, used: int) -> bool:
    """Return whether so many bytes are held without use that they are given back."""
    return held - used >= LEAST and held >= TIMES * used


def give_back(context: Context) -> None:
    """Empty the caches that are worth it, and note what came back; the order is taken.  Never raises."""
    context.set("command", 0)
    with context.own_work():
        for library in libraries.imported():
            for name, (read, empty) in library.caches.items():
                try:
                    before = read()
                    if before is None or not is_worth(*before):
                        continue
                    empty()
                    after = read()
                except Exception as error:
                    context.surprise("the cache of " + name, error)
                    continue
                held, used = before
                freed = max(0, held - after[0]) if after is not None else 0
                text = "memory is short, and %s held %s for %s in use: its cache was emptied, and %s came back"
                sizes = tuple("%.2f GB" % (size / 1e9) for size in (held, used, freed))
                context.note("caches", text % (name, *sizes), bytes=freed)

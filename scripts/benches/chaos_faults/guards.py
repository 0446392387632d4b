"""What keeps each promise: the text of the product that is its guard, and what takes it out.

`scripts/bench chaos --without-guards` makes the changes of a row in a copy of stallguard, and expects that the row
fails.  A promise that nothing in stallguard keeps has a reason in place of changes.
"""

from __future__ import annotations

from . import guards_inside, guards_outside
from .fault import Guards

GUARDS: Guards = guards_outside.GUARDS | guards_inside.GUARDS
NO_GUARD: dict[str, str] = {
    "supervisor-killed-at-start": "each run has a directory of its own, and no run waits for what another one left",
    "disk-slow": "neither the training nor the thread that carries its output writes what is slow here",
    "directory-deleted": "nothing in a run asks for the working directory after the start of the training",
    "own-hooks-of-the-end": "the probe replaces none of these hooks",
    "thousand-children": "the kernel keeps what the training does not wait for, and stallguard waits for none of it",
    "no-temporary-directory": "a run writes into its own directory, and Python itself finds another temporary one",
}

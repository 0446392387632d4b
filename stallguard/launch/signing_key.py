"""The key with which trainings sign pickles in their checkpoints: one of the user, or one of the fleet.

A pickle can run code, and a checkpoint can come from elsewhere: a run that was shared, the store of a fleet.  So the
probe loads only pickles that a key signed which no other user can read (probe/checkpoint/pickled.py).  A job of a fleet
goes on on other machines: its key follows from the token of the fleet, which the store does not have.
"""

from __future__ import annotations

import contextlib
import os
from _blake2 import blake2b  # hashlib also loads OpenSSL: milliseconds before the start of the training
from pathlib import Path

from stallguard.storage import private

BYTES = 32
NAME = "signing.key"
VARIABLE = "STALLGUARD_SIGNING_KEY"  # a file of the key, which the worker of a fleet gives its runs


def ensure(home: Path, given: str) -> str:
    """Return the file of the key: `given`, which the worker of a fleet named, or one in `home`, made if it is missing.

    Raises OSError, PermissionError for a key that others can read: the probe would sign nothing with it.
    """
    file = home / NAME
    if given:
        return given
    if file.exists() and (file.stat().st_mode & private.OTHERS or not private.is_ours(file)):
        raise PermissionError(13, "others can read the key, or it is another user's; remove it", str(file))
    if not file.exists():
        private.ensure(home)
        new = home / f"{NAME}.{os.getpid()}"
        private.write(new, os.urandom(BYTES))
        try:
            with contextlib.suppress(FileExistsError):  # another run has made it meanwhile
                os.link(new, file)
        finally:
            new.unlink()
    return str(file)


def of_fleet(home: Path, token: str) -> str:
    """Write the key that belongs to the token of a fleet, and return its file.  Raises OSError."""
    file = home / "fleet" / NAME
    private.ensure(file.parent)
    new = file.with_name(f"{NAME}.{os.getpid()}")
    private.write(new, blake2b(bytes.fromhex(token), digest_size=BYTES, person=b"checkpoints").digest())
    new.replace(file)
    return str(file)

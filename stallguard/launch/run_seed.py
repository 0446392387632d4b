"""The seed of a run: drawn once, kept beside its checkpoints, given to each attempt.

A run that resumes from the checkpoints of another uses its seed.
"""

from __future__ import annotations

import os
from _blake2 import blake2b  # hashlib also loads OpenSSL: milliseconds before the start of the training
from pathlib import Path

from stallguard.storage import private
from stallguard.storage.paths import SEED

BYTES = 16


def seed(folder: Path) -> str:
    """Return the seed kept in `folder`, in decimal digits; drawn and written if there is none.

    Raises OSError if it can be neither read nor written.
    """
    file = folder / SEED
    try:
        kept = file.read_text("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if kept.isdecimal():
        return kept
    private.ensure(folder)
    drawn, new = drawn_seed(), file.with_name(f"{SEED}.new")
    private.write(new, drawn.encode("ascii"))
    new.replace(file)
    return drawn


def drawn_seed() -> str:
    """Return a random seed."""
    return str(int.from_bytes(os.urandom(BYTES), "little"))


def hash_seed(seed: str) -> str:
    """Return the PYTHONHASHSEED of a run.  Never 0: that would turn hash randomization off."""
    digest = blake2b(seed.encode(), digest_size=4, person=b"hashes").digest()
    return str(max(1, int.from_bytes(digest, "little")))

"""What verbs share that write a file which the user named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from stallguard.errors import CANNOT_RUN, StallguardError


@contextlib.contextmanager
def writing(target: Path, option: str) -> Iterator[None]:
    """Raise StallguardError if the block cannot write `target`.  `option`: what names another file."""
    try:
        yield
    except OSError as error:
        raise StallguardError(
            f"cannot write {target}", why=error.strerror or str(error), cure=f"choose another: {option} FILE",
            code=CANNOT_RUN,
        ) from error  # fmt: skip

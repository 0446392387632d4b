"""One log signature: a line of output that means something.

Pure; must not know which signatures there are.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Signature(NamedTuple):
    """A row of the table.

    `family`: what lines of one meaning share, in upper case; the clues ask for it.
    Every line that matches contains one of `keys`: a cheap test before the regex.  The regex sees one line, or
    the line before and the line joined by a newline if `span` is 2.  `source`: gh: means github.com,
    "strings" of a library means that its binary contains the text.
    """

    id: str
    family: str
    keys: tuple[str, ...]
    regex: str
    meaning: str
    source: str
    span: int = 1

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled regex (the re module keeps compiled ones)."""
        return re.compile(self.regex)

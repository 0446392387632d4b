"""Foreign text made fit to be shown: what would steer a terminal or turn a line around becomes visible instead.

For everything that the script, its libraries or the system wrote.  Pure; must not remove words.
"""

from __future__ import annotations

import re

from stallguard.core.text import cut

# `re` compiles them when they are used first, which takes a millisecond: the start of a training would wait for it.
_COLOUR = r"\x1b\[[0-9;:]*m"
# Also the tag characters: no terminal shows them, and a language model reads them as letters.
_UNSAFE = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e007f]"
)
PICTURES = 0x2400  # Unicode's pictures of the ASCII control characters


def plain(text: str) -> str:
    """Return `text` with every character visible: control characters as pictures, others as <U+202E>.

    Letters of any script stay, those written from right to left too; a line end and a tab stay what they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNSAFE, _visible, text)


def one_line(text: str) -> str:
    """Return `text` as `plain` does, with line ends visible too: for a list that has a line for each item."""
    return plain(text).replace("\n", "\u240a")


def json_text(data: bytes) -> bytes:
    """Return JSON with the same values, in which such characters are escapes: for JSON on a terminal."""
    import json  # 2 ms that only a verb with such characters in its JSON needs

    text = data.decode(errors="replace")
    return re.sub(_UNSAFE, lambda match: json.dumps(match[0])[1:-1], text).encode()


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:  # noqa: PLR2004 - the C0 controls
        return chr(PICTURES + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"  # noqa: PLR2004 - DEL has a picture of its own


def screen(data: bytes, lines: int, columns: int) -> list[str]:
    """Return the last `lines` of an output, as a terminal would show them; colours are left out.

    Of a progress bar that was drawn again and again its last state is kept.  A longer line ends in an ellipsis.
    """
    kept = [line for line in drawn(data) if line][-lines:]
    return [cut(line, columns) for line in kept]


def drawn(data: bytes) -> list[str]:
    """Return the lines of an output as `screen` does: all of them, in their whole length."""
    text = re.sub(_COLOUR, "", data.decode(errors="replace").replace("\r\n", "\n"))
    # Of a line whose beginning is written again, by carriage returns or backspaces, the last writing stays.
    redrawn = (re.split(r"[\r\x08]+", line.rstrip("\r\x08"))[-1] for line in text.split("\n"))
    return [plain(line).rstrip() for line in redrawn]

"""Makes inputs for a decoder from valid ones: a seed gives the same inputs each time.

Most are valid samples with a few changes (a bit, a number, a piece removed, doubled or moved, a piece of another one),
because these come far into a decoder.  One in ten is built from pieces of the format without a sample, one in fifty is
noise.  Standard library only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

MOST = 5000  # bytes by which an input can be longer than its longest sample
# What breaks decoders: ends of integer types, numbers that are none, deep nesting, other encodings, ends of lines.
PIECES = (
    b"0", b"-1", b"1e999", b"-0.0", b"NaN", b"Infinity", b"null", b"true", b"{}", b"[]", b'""', b"[" * 600,
    b'{"a":' * 300,
    b"9223372036854775807", b"-9223372036854775809", b"1" * 4400, b"0x7f", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80",
    b"\\ud800", b"\\u0000", b"\x00", b"\n", b"\r\n", b"\x1b]0;x\x07", b"\xe2\x80\xae", b"\t", b" ", b"'", b'"', b"\\",
    b"=", b":", b",", b"{", b"}", b"(", b")", b"<", b">", b"&", b"%s", b"..", b"/", b"~", b"\xd9\xa1", b"\xc2\xb2",
)  # fmt: skip
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"4294967296", b"9223372036854775808", b"1e308", b"-2.5", b"\xc2\xb2")


class Mutator:
    """Endless inputs like `samples`."""

    def __init__(self, samples: Sequence[bytes], seed: int, words: Sequence[bytes] = ()) -> None:
        """`words`: of the format, which inputs without a sample are made of too."""
        self._samples, self._random = list(samples), random.Random(seed)
        self._most = max(map(len, samples)) + MOST
        found = {word for sample in samples for word in re.findall(rb"[\w.-]{2,40}|[^\w\s]", sample)}
        self._words = sorted({*words, *sorted(found)[:2000]}) or [b"x"]

    def inputs(self, count: int) -> Iterator[bytes]:
        """Yield `count` inputs, the samples themselves first."""
        yield from self._samples[:count]
        for _ in range(count - len(self._samples)):
            yield self.one()

    def one(self) -> bytes:
        chance = self._random.random()
        if chance < 0.02:
            return self._random.randbytes(self._random.randrange(0, 64))
        if chance < 0.12:
            return self._built()
        data = bytearray(self._random.choice(self._samples))
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
            self._changed(data)
        return bytes(data[: self._most])

    def _built(self) -> bytes:
        pick, many = self._random.choice, self._random.randrange(1, 30)
        return b"".join(pick(self._words if pick((True, True, False)) else PIECES) for _ in range(many))[: self._most]

    def _changed(self, data: bytearray) -> None:
        draw = self._random
        size = len(data)
        at = draw.randrange(size + 1)
        end = min(size, at + draw.choice((1, 1, 2, 4, 8, 16, 64, 400)))
        way = draw.randrange(9)
        if way == 0 and size:
            data[at % size] ^= 1 << draw.randrange(8)
        elif way == 1 and size:
            data[at % size] = draw.randrange(256)
        elif way == 2:
            del data[at:end]
        elif way == 3:
            data[at:at] = draw.choice(PIECES)
        elif way == 4:
            data[at:end] = draw.choice(self._words)
        elif way == 5:
            data[at:at] = data[at:end] * draw.choice((1, 1, 2, 20))
        elif way == 6:
            other = draw.choice(self._samples)
            begin = draw.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + draw.choice((8, 40, 400))]
        elif way == 7:
            del data[at:]
        elif found := NUMBER.search(data, at):
            data[found.start() : found.end()] = draw.choice(NUMBERS)

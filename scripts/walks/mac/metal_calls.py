"""Calls of Metal through the Objective-C runtime, by ctypes: one that never returns, and a small computation.

`metal_calls.py` alone has the GPU fill a buffer, looks at it, and exits with 0 if it is filled.  Standard library only:
it runs in any Python of a Mac, without a compiler.

objc_msgSend is called with the exact types of each method: on arm64 it takes its arguments as a function of that type
does, not as a variadic one (Apple, "Addressing architectural differences in your macOS code").
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_ubyte, c_uint64, c_void_p
from typing import Any

OBJC = "/usr/lib/libobjc.A.dylib"
METAL = "/System/Library/Frameworks/Metal.framework/Metal"
# A program without windows has no default device unless this is loaded (Apple, MTLCreateSystemDefaultDevice).
GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
COMPLETED = 4  # MTLCommandBufferStatusCompleted
LENGTH, BYTE = 4096, 0x5A  # of the buffer that is filled
HOUR = 3_600_000  # milliseconds


class Range(ctypes.Structure):
    """NSRange: two NSUInteger."""

    _fields_ = (("location", c_uint64), ("length", c_uint64))


# The types of what is returned and of the arguments, after the receiver and the selector.
METHODS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "newCommandQueue": (c_void_p, ()),
    "newSharedEvent": (c_void_p, ()),
    "commandBuffer": (c_void_p, ()),
    "encodeWaitForEvent:value:": (None, (c_void_p, c_uint64)),
    "commit": (None, ()),
    "waitUntilCompleted": (None, ()),
    "status": (c_uint64, ()),
    "error": (c_void_p, ()),
    "localizedDescription": (c_void_p, ()),
    "UTF8String": (c_char_p, ()),
    "respondsToSelector:": (c_bool, (c_void_p,)),
    "waitUntilSignaledValue:timeoutMS:": (c_bool, (c_uint64, c_uint64)),
    "newBufferWithLength:options:": (c_void_p, (c_uint64, c_uint64)),
    "blitCommandEncoder": (c_void_p, ()),
    "fillBuffer:range:value:": (None, (c_void_p, Range, c_ubyte)),
    "endEncoding": (None, ()),
    "contents": (c_void_p, ()),
}


class NoMetal(OSError):
    """There is no Metal here, or it refuses an object."""


class Metal:
    """The device of this Mac and one queue of it, inside an autorelease pool."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        """`load`: opens a library by its path.  Raises NoMetal."""
        try:
            load(GRAPHICS)
            metal, self._objc = load(METAL), load(OBJC)
        except OSError as error:
            raise NoMetal(str(error)) from error
        self._selectors = self._typed(self._objc, "sel_registerName", c_void_p, c_char_p)
        self._senders: dict[str, Any] = {}
        self._pool = self._typed(self._objc, "objc_autoreleasePoolPush", c_void_p)()
        self._device = self._typed(metal, "MTLCreateSystemDefaultDevice", c_void_p)()
        if not self._device:
            raise NoMetal("this machine has no Metal device")
        self._queue = self._some(self._device, "newCommandQueue")

    @staticmethod
    def _typed(library: Any, name: str, result: Any, *arguments: Any) -> Any:
        """Return a function with its types; an index gives a new one each time, an attribute always the same."""
        function = library[name]
        function.restype, function.argtypes = result, list(arguments)
        return function

    def send(self, receiver: int, method: str, *arguments: Any) -> Any:
        """Send a message of METHODS.  The interpreter's lock is free meanwhile."""
        if method not in self._senders:
            result, types = METHODS[method]
            self._senders[method] = self._typed(self._objc, "objc_msgSend", result, c_void_p, c_void_p, *types)
        return self._senders[method](receiver, self._selector(method), *arguments)

    def _selector(self, method: str) -> int:
        return int(self._selectors(method.encode()))

    def _some(self, receiver: int, method: str, *arguments: Any) -> int:
        """Send a message that answers with an object.  Raises NoMetal if it answers with nil."""
        made = self.send(receiver, method, *arguments)
        if not made:
            raise NoMetal(f"{method} gives nothing")
        return int(made)

    def wait_in_a_command_buffer(self) -> str:
        """Wait for a command buffer that waits for an event that is never signalled; if that returns, say how it ended.

        The commands after such a wait do not run before the event is signalled (Apple, encodeWaitForEvent:value:), so
        the GPU has nothing to compute for it.
        """
        event, buffer = self._some(self._device, "newSharedEvent"), self._some(self._queue, "commandBuffer")
        self.send(buffer, "encodeWaitForEvent:value:", event, 1)
        self.send(buffer, "commit")
        self.send(buffer, "waitUntilCompleted")
        return self._ended(buffer)

    def wait_for_an_event(self) -> str:
        """Wait for a shared event without the GPU, an hour long; say how it ended.  macOS 12 and later."""
        event, method = self._some(self._device, "newSharedEvent"), "waitUntilSignaledValue:timeoutMS:"
        if not self.send(event, "respondsToSelector:", self._selector(method)):
            return "there is no such call"
        return f"signalled: {self.send(event, method, 1, HOUR)}"

    def fill(self) -> str:
        """Have the GPU fill a buffer; return "" if it did, else what happened."""
        memory = self._some(self._device, "newBufferWithLength:options:", LENGTH, 0)  # 0: shared with the processor
        buffer = self._some(self._queue, "commandBuffer")
        encoder = self._some(buffer, "blitCommandEncoder")
        self.send(encoder, "fillBuffer:range:value:", memory, Range(0, LENGTH), BYTE)
        self.send(encoder, "endEncoding")
        self.send(buffer, "commit")
        self.send(buffer, "waitUntilCompleted")
        if self.send(buffer, "status") != COMPLETED:
            return self._ended(buffer)
        filled = ctypes.string_at(self._some(memory, "contents"), LENGTH)
        return "" if filled == bytes([BYTE]) * LENGTH else "the buffer is not filled"

    def _ended(self, buffer: int) -> str:
        text, status = "no error", self.send(buffer, "status")
        if error := self.send(buffer, "error"):
            text = (self.send(self.send(error, "localizedDescription"), "UTF8String") or b"").decode(errors="replace")
        return f"status {status}, {text}"

    def close(self) -> None:
        """Release what was made inside the pool; what `new` has made ends with the process."""
        self._typed(self._objc, "objc_autoreleasePoolPop", None, c_void_p)(self._pool)


def main() -> int:
    """Fill a buffer; return the exit code."""
    try:
        metal = Metal()
        why = metal.fill()
        metal.close()
    except NoMetal as error:
        why = str(error)
    print(why or f"the GPU filled {LENGTH} bytes")
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main())

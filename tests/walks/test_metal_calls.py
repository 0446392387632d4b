"""The calls of Metal, against a recording double of the Objective-C runtime that is strict about types."""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char_p, c_ubyte, c_uint64, c_void_p

import pytest

DEVICE, QUEUE, EVENT, BUFFER, ENCODER, MEMORY, ERROR, TEXT, POOL = range(1001, 1010)


class Function:
    """A function of a library: it refuses calls whose arguments are not of its declared types."""

    restype = argtypes = "not declared"

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, *arguments):
        assert self.argtypes != "not declared", "ctypes would guess, and cut pointers to 32 bits"
        assert len(arguments) == len(self.argtypes)
        for argument, kind in zip(arguments, self.argtypes, strict=True):
            assert isinstance(argument, kind) or kind.from_param(argument) is not None or argument is None
        return self.answer(self, *arguments)


class Runtime:
    """libobjc, Metal and CoreGraphics; `messages`: receiver, method, arguments, and the types of the call."""

    def __init__(self, *, device=DEVICE, status=4, error=None, knows=True, filled=True):
        self.device, self.knows, self.filled = device, knows, filled
        self.messages, self.loaded, self.selectors, self.pools = [], [], {}, []
        self.memory = ctypes.create_string_buffer(4096)
        self.answers = {
            "newCommandQueue": QUEUE, "newSharedEvent": EVENT, "commandBuffer": BUFFER, "status": status,
            "error": error, "localizedDescription": TEXT, "UTF8String": b"Caused GPU Timeout Error",
            "newBufferWithLength:options:": MEMORY, "blitCommandEncoder": ENCODER, "respondsToSelector:": knows,
            "contents": ctypes.addressof(self.memory), "waitUntilSignaledValue:timeoutMS:": False,
        }  # fmt: skip

    def load(self, path):
        self.loaded.append(path.rpartition("/")[2])
        return self

    def __getitem__(self, name):
        return Function(getattr(self, name))

    def sel_registerName(self, call, name):  # noqa: N802 - of libobjc
        assert (call.restype, call.argtypes) == (c_void_p, [c_char_p])
        return self.selectors.setdefault(name.decode(), 5000 + len(self.selectors))

    def objc_autoreleasePoolPush(self, call):  # noqa: N802
        assert call.restype is c_void_p
        self.pools.append(POOL)
        return POOL

    def objc_autoreleasePoolPop(self, call, pool):  # noqa: N802
        assert (call.restype, call.argtypes) == (None, [c_void_p])
        self.pools.remove(pool)

    def MTLCreateSystemDefaultDevice(self, call):  # noqa: N802
        assert (call.restype, call.argtypes) == (c_void_p, [])
        assert "CoreGraphics" in self.loaded, "without it there is no default device"
        return self.device

    def objc_msgSend(self, call, receiver, selector, *arguments):  # noqa: N802
        method = next(name for name, number in self.selectors.items() if number == selector)
        assert call.argtypes[:2] == [c_void_p, c_void_p]
        self.messages.append((receiver, method, arguments, call.restype, tuple(call.argtypes[2:])))
        if method == "fillBuffer:range:value:" and self.filled:
            memory, where, value = arguments
            assert (memory, where.location) == (MEMORY, 0)
            ctypes.memset(self.memory, value, where.length)
        return self.answers.get(method)


def made(runtime: Runtime):
    from mac.metal_calls import Metal

    return Metal(runtime.load)


def test_a_command_buffer_waits_for_an_event_that_nobody_signals():
    runtime = Runtime(status=5, error=ERROR)
    metal = made(runtime)
    assert runtime.pools == [POOL], "commandBuffer is autoreleased"
    said = metal.wait_in_a_command_buffer()

    assert runtime.messages == [
        (DEVICE, "newCommandQueue", (), c_void_p, ()),
        (DEVICE, "newSharedEvent", (), c_void_p, ()),
        (QUEUE, "commandBuffer", (), c_void_p, ()),
        (BUFFER, "encodeWaitForEvent:value:", (EVENT, 1), None, (c_void_p, c_uint64)),
        (BUFFER, "commit", (), None, ()),
        (BUFFER, "waitUntilCompleted", (), None, ()),
        (BUFFER, "status", (), c_uint64, ()),
        (BUFFER, "error", (), c_void_p, ()),
        (ERROR, "localizedDescription", (), c_void_p, ()),
        (TEXT, "UTF8String", (), c_char_p, ()),
    ]
    assert said == "status 5, Caused GPU Timeout Error"
    metal.close()
    assert runtime.pools == []


def test_a_wait_without_the_gpu_is_asked_for_only_where_it_exists():
    runtime = Runtime()
    assert made(runtime).wait_for_an_event() == "signalled: False"
    method = "waitUntilSignaledValue:timeoutMS:"
    assert runtime.messages[-2:] == [
        (EVENT, "respondsToSelector:", (runtime.selectors[method],), c_bool, (c_void_p,)),
        (EVENT, method, (1, 3_600_000), c_bool, (c_uint64, c_uint64)),
    ]
    older = Runtime(knows=False)
    assert made(older).wait_for_an_event() == "there is no such call"
    assert not any(message[1] == method for message in older.messages)


def test_the_gpu_fills_a_buffer_and_what_it_did_is_looked_at():
    from mac.metal_calls import Range

    runtime = Runtime()
    assert made(runtime).fill() == ""
    sent = {method: (receiver, types) for receiver, method, _, _, types in runtime.messages}
    assert sent["newBufferWithLength:options:"] == (DEVICE, (c_uint64, c_uint64))
    assert sent["fillBuffer:range:value:"] == (ENCODER, (c_void_p, Range, c_ubyte))
    order = [message[1] for message in runtime.messages]
    assert order.index("endEncoding") < order.index("commit") < order.index("waitUntilCompleted")
    assert made(Runtime(filled=False)).fill() == "the buffer is not filled"
    assert made(Runtime(status=5)).fill() == "status 5, no error"


def test_a_machine_without_metal_says_so(capsys):
    from mac import metal_calls

    with pytest.raises(metal_calls.NoMetal, match="no Metal device"):
        made(Runtime(device=None))
    refusing = Runtime()
    refusing.answers["newCommandQueue"] = None
    with pytest.raises(metal_calls.NoMetal, match="newCommandQueue gives nothing"):
        made(refusing)

    def absent(path):
        raise OSError(f"no {path}")

    with pytest.raises(metal_calls.NoMetal, match="no /System"):
        metal_calls.Metal(absent)


def test_each_method_has_a_function_of_its_own():
    """An attribute of a library would be one function for all: the types of one method would be those of another."""
    library = ctypes.CDLL(None)
    assert library["getpid"] is not library["getpid"]
    runtime = Runtime()
    made(runtime).fill()
    types = {method: types for _, method, _, _, types in runtime.messages}
    assert types["commit"] == ()
    assert len(types["fillBuffer:range:value:"]) == 3


def test_a_range_goes_by_value_as_two_integers(tmp_path):
    from mac.metal_calls import Range

    assert ctypes.sizeof(Range) == 16
    assert (Range(3, 5).location, Range(3, 5).length) == (3, 5)

"""Work that can block without a limit, beside an event loop that must go on: signals and hours are looked at there.

A share that is away keeps a thread in the kernel, perhaps for hours.  The threads of `asyncio.to_thread` would be
waited for at the end of the process, and there are only a few of them; those here are daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from stallguard.fleet.store import StoreError
from stallguard.worker import Worker

STORE = 15.0  # s that the store has to answer
T = TypeVar("T")


def beside(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Begin `work` in a thread; return what it will return or raise.  Raises RuntimeError if there is no thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # it is not waited for any more
        if error is None:
            future.set_result(cast("T", result))
        else:
            future.set_exception(error)
            future.exception()  # without this, asyncio reports one that is not asked for

    def do() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, result, failure)

    Worker(do, name).start()
    return future


async def answered(work: Callable[[], T], seconds: float = STORE) -> T:
    """Return what `work` returns, which asks the store.  Raises what it raises, and StoreError if it takes longer."""
    return await Asking[T]().answered(work, seconds)


class Asking(Generic[T]):
    """One question to the store at a time: one that is not answered is not asked again beside it."""

    def __init__(self) -> None:
        self._open: asyncio.Future[T] | None = None

    async def answered(self, work: Callable[[], T], seconds: float = STORE) -> T:
        """As `answered`; what an earlier question answers too late is not used."""
        if self._open is not None and not self._open.done():
            await _done(self._open, seconds)
        self._open = beside(work, "store")
        await _done(self._open, seconds)
        return self._open.result()


async def _done(future: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait({future}, timeout=seconds)
    if not future.done():
        raise StoreError(f"it does not answer within {seconds:g} s")

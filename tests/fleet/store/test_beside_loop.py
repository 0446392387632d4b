"""Questions to a store beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from stallguard.fleet.store import StoreError
from stallguard.fleet.store.beside_loop import Asking, answered

PATIENCE = 60.0


def test_a_store_that_does_not_answer_is_an_error_and_is_not_asked_beside_itself():
    silent, asked = threading.Event(), []

    def ask():
        asked.append(1)
        return silent.wait(PATIENCE)

    async def steps():
        asking = Asking()
        for _ in range(3):
            with pytest.raises(StoreError, match="does not answer"):
                await asking.answered(ask, 0.05)
        assert len(asked) == 1
        silent.set()
        assert await asking.answered(ask, PATIENCE)
        with pytest.raises(ValueError, match="as it was raised"):
            await answered(partial(fail, "as it was raised"))

    asyncio.run(steps())
    assert len(asked) == 2


def fail(text):
    raise ValueError(text)

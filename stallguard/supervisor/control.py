"""The control socket: how `stallguard status`, `stop`, `restart`, `mute` and `dump` reach a live run.

A question is one JSON line {"verb", "argument"}; the answer is one JSON line.  The thread only posts events and
shows the newest snapshot; it may not decide anything and may not touch the run.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core.events import Asked, Event
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.supervisor.sockets import LOOK, Named

VERBS = ("stop", "restart", "mute", "dump")
LINE_MAX = 4096  # bytes of a question
PATIENCE = 2.0  # seconds for a client to say its line, and for us to answer


class Question(msgspec.Struct):
    """What a client asks."""

    verb: str
    argument: str = ""


class Control:
    """Answers on a stream socket until closed."""

    def __init__(
        self,
        path: Path,
        post: Callable[[Event], None],
        now: Callable[[], float],
        status: Callable[[], Any],
        refuses: Callable[[str], str] = lambda _verb: "",
    ) -> None:
        """Listen on `path`.

        `status` returns the newest snapshot, anything msgspec can encode; `refuses`: why a verb cannot be done now,
        or "".
        """
        self.path, self._post, self._now, self._status, self._refuses = path, post, now, status, refuses
        self._named = Named(path, socket.SOCK_STREAM, backlog=4)
        self._ended, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket."""
        os.write(self._wake, b"x")
        self._thread.join(PATIENCE * 2)
        self._named.close()
        os.close(self._wake)
        os.close(self._ended)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._named.socket, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                ready = [key.fd for key, _ in selector.select(LOOK)]
                if self._ended in ready:
                    return
                if not ready:
                    self._keep_the_name(selector)
                    continue
                with contextlib.suppress(OSError):  # a client that went away is its own matter
                    self._answer()

    def _keep_the_name(self, selector: selectors.BaseSelector) -> None:
        """Bind the socket again if its name is gone, so that `stallguard stop` reaches the run."""
        before = self._named.socket
        with contextlib.suppress(OSError):  # no place for it: the probe's socket tells of that
            if self._named.renew():
                selector.unregister(before)
                selector.register(self._named.socket, selectors.EVENT_READ)

    def _answer(self) -> None:
        client, _ = self._named.socket.accept()
        with client:
            client.settimeout(PATIENCE)
            client.sendall(msgspec.json.encode(self._reply(_line(client))) + b"\n")

    def _reply(self, line: bytes) -> Any:
        try:
            question = msgspec.json.decode(line, type=Question)
        except ValueError as error:  # msgspec's errors, and text that is no UTF-8
            return {"schema": 1, "ok": False, "why": str(error)}
        if question.verb == "status":
            return self._status()
        if question.verb not in VERBS:
            return {"schema": 1, "ok": False, "why": f"unknown verb {question.verb!r}"}
        if question.verb == "mute" and question.argument and not _is_span(question.argument):
            return {"schema": 1, "ok": False, "why": f"mute wants seconds, not {question.argument!r}"}
        if why := self._refuses(question.verb):
            return {"schema": 1, "ok": False, "why": why}
        self._post(Asked(at=self._now(), verb=question.verb, argument=question.argument))
        return {"schema": 1, "ok": True}


def _is_span(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0.0 <= float(text) < math.inf
    return False


def _line(connection: socket.socket) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < LINE_MAX:
        chunk = connection.recv(LINE_MAX)
        if not chunk:
            break
        data += chunk
    return data.partition(b"\n")[0]


def ask(path: str, verb: str, argument: str = "") -> dict[str, Any]:
    """Ask the run behind `path`.

    Raises StallguardError (exit code 3) where nobody answers there.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(PATIENCE * 2)
            server.connect(path)
            server.sendall(msgspec.json.encode(Question(verb=verb, argument=argument)) + b"\n")
            answer: dict[str, Any] = msgspec.json.decode(_whole(server))
            return answer
    except (OSError, ValueError) as error:
        raise StallguardError(
            "the run does not answer",
            why=f"its control socket {path or '(none)'}: {error}",
            cure="stallguard ls shows which runs live; stallguard logs shows what one said last",
            code=NO_SUCH_RUN,
        ) from error


def _whole(server: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = server.recv(1 << 16)
        if not chunk:
            break
        data += chunk
    return data

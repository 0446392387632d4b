"""The control socket: how `stallguard status`, `stop`, `restart`, `mute` and `dump` reach a live run.

A question is one JSON line {"verb", "argument"}; the answer is one JSON line.  The thread only posts events and
returns the newest snapshot; it must not decide anything and must not change the run.  It serves all clients at a time,
so a slow one delays no other.

Both ends ask the kernel for the user at the other end: the directory of the socket keeps other users out, and this
holds if that directory was opened to them, and for an address that a copied or shared directory of a run contains.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.core.events import Event, UserCommand
from stallguard.errors import NO_SUCH_RUN, UNREADABLE, StallguardError
from stallguard.host import system
from stallguard.supervisor import notices
from stallguard.supervisor.sockets import LOOK, Named
from stallguard.worker import Worker

VERBS = ("stop", "restart", "mute", "dump")
LINE_MAX = 4096  # bytes of a question
PATIENCE = 2.0  # seconds for a client in all: to say its line and to take our answer
MOST_CLIENTS = 32  # at once
ANSWER_MAX = 8 << 20  # bytes of an answer; a run with a hundred trainings takes 60 kB
ANSWER = 20.0  # seconds for a whole answer
ROOT = 0
FULL = 0.02  # seconds until a full queue is tried again


class Question(msgspec.Struct):
    """What a client asks."""

    verb: str
    argument: str = ""


class _Client(msgspec.Struct, eq=False):
    """`until`: monotonic seconds; `answer`: what it has not taken of its answer yet."""

    socket: socket.socket
    until: float
    line: bytes = b""
    answer: bytes = b""


class Control:
    """Answers on a stream socket until closed."""

    def __init__(
        self, path: Path, post: Callable[[Event], None], now: Callable[[], float], status: Callable[[], Any],
        refuses: Callable[[str], str] = lambda _verb: "", trouble: Callable[[str], None] = lambda _words: None,
    ) -> None:  # fmt: skip
        """Listen on `path`.

        `status` returns the newest snapshot, anything msgspec can encode; `refuses`: why a verb cannot be done now,
        or "".  `trouble` is called with the first error of our own.
        """
        self._trouble, self.failed = trouble, 0  # how many messages could not be answered
        self._clients: list[_Client] = []
        self.path, self._post, self._now, self._status, self._refuses = path, post, now, status, refuses
        self._named = Named(path, socket.SOCK_STREAM, backlog=MOST_CLIENTS)
        self._ended, self._wake = os.pipe()
        self._thread = Worker(self._serve, "control")
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket."""
        os.write(self._wake, b"x")
        self._thread.join(PATIENCE * 2)
        self._named.close()
        os.close(self._wake)
        os.close(self._ended)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as clients:
            selector.register(self._named.socket, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                # Until the first client's time is over, or the next look at the name is due.
                first = min((client.until for client in self._clients), default=math.inf)
                wait = min(LOOK, max(0.0, first - time.monotonic()))
                ready = {key.fd: key.data for key, _ in selector.select(wait)}
                if self._ended in ready:
                    return
                if not ready:
                    self._keep_the_name(selector)
                if self._named.socket.fileno() in ready:
                    self._admit(selector, clients)
                for client in filter(None, ready.values()):
                    self._attend(client, selector)
                for client in [one for one in self._clients if one.until <= time.monotonic()]:
                    self._dismiss(client, selector)

    def _keep_the_name(self, selector: selectors.BaseSelector) -> None:
        """Bind the socket again if its name is gone, so that `stallguard stop` reaches the run."""
        before = self._named.socket
        # If the socket cannot be bound, the receiver of the probe's records reports that.
        with contextlib.suppress(OSError):
            if self._named.renew():
                selector.unregister(before)
                selector.register(self._named.socket, selectors.EVENT_READ)

    def _admit(self, selector: selectors.BaseSelector, closing: contextlib.ExitStack) -> None:
        """Accept a client; dismiss the oldest if there are too many."""
        with contextlib.suppress(OSError):  # it has gone away
            accepted = self._named.socket.accept()[0]
            if not is_trusted(accepted):
                accepted.close()
                return
            client = _Client(closing.enter_context(accepted), time.monotonic() + PATIENCE)
            client.socket.setblocking(False)
            self._clients.append(client)
            selector.register(client.socket, selectors.EVENT_READ, client)
        if len(self._clients) > MOST_CLIENTS:
            self._dismiss(self._clients[0], selector)

    def _attend(self, client: _Client, selector: selectors.BaseSelector) -> None:
        """Read a client's question, or send it the rest of its answer."""
        try:
            if not client.answer:
                said = client.socket.recv(LINE_MAX)
                client.line += said
                if said and b"\n" not in client.line and len(client.line) < LINE_MAX:
                    return
                client.answer = self._answer(client.line.partition(b"\n")[0])
                selector.modify(client.socket, selectors.EVENT_WRITE, client)
            client.answer = client.answer[client.socket.send(client.answer) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it has gone away
            client.answer = b""
        if not client.answer:
            self._dismiss(client, selector)

    def _dismiss(self, client: _Client, selector: selectors.BaseSelector) -> None:
        self._clients.remove(client)
        selector.unregister(client.socket)
        client.socket.close()

    def _answer(self, line: bytes) -> bytes:
        """Return the answer to a line; an error of ours costs this answer, not the socket."""
        try:
            return jsontext.readable(self._reply(line)) + b"\n"
        except Exception as error:  # noqa: BLE001 - the next client must be served
            self.failed += 1
            if self.failed == 1:
                self._trouble(f"a message to the control socket cannot be answered ({notices.error_words(error)})")
            why = f"stallguard itself failed ({type(error).__name__})"
            return msgspec.json.encode({"schema": 1, "ok": False, "why": why}) + b"\n"

    def _reply(self, line: bytes) -> Any:
        try:
            question = msgspec.json.decode(line, type=Question)
        except UNREADABLE as error:
            return {"schema": 1, "ok": False, "why": str(error)}
        if question.verb == "status":
            return self._status()
        if question.verb not in VERBS:
            return {"schema": 1, "ok": False, "why": f"unknown verb {question.verb!r}"}
        if question.verb == "mute" and question.argument and not _is_span(question.argument):
            return {"schema": 1, "ok": False, "why": f"mute wants seconds, not {question.argument!r}"}
        if why := self._refuses(question.verb):
            return {"schema": 1, "ok": False, "why": why}
        self._post(UserCommand(at=self._now(), verb=question.verb, argument=question.argument))
        return {"schema": 1, "ok": True}


def is_trusted(connection: socket.socket) -> bool:
    """Return whether the process at the other end is this user's or root's, or the system does not say."""
    return system.peer_user(connection) in (None, ROOT, os.geteuid())


def _is_span(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return 0.0 <= float(text) < math.inf
    return False


def _connect(server: socket.socket, path: str, deadline: float) -> None:
    """Connect; wait until `deadline` while the queue of the run is full.

    Linux answers a socket that has a time limit with EAGAIN then, and does not wait (connect(2), AF_UNIX).
    """
    server.settimeout(PATIENCE * 2)
    while True:
        try:
            return server.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(FULL)


def ask(path: str, verb: str, argument: str = "") -> dict[str, Any]:
    """Ask the run behind `path`.  Raises StallguardError (exit code 3) if there is no answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            _connect(server, path, time.monotonic() + PATIENCE * 2)
            if not is_trusted(server) and os.geteuid() != ROOT:
                raise PermissionError(1, "another user has it")
            server.sendall(msgspec.json.encode(Question(verb=verb, argument=argument)) + b"\n")
            return decoded(_line(server, time.monotonic() + ANSWER))
    except (OSError, *UNREADABLE) as error:
        raise StallguardError(
            "the run does not answer",
            why=f"its control socket {path or '(none)'}: {error}",
            cure="stallguard ls shows which runs live; stallguard logs shows what one said last",
            code=NO_SUCH_RUN,
        ) from error


def _line(server: socket.socket, deadline: float) -> bytes:
    """Return the answer.  Raises OSError if it is too long, or not complete by `deadline`."""
    data = bytearray()
    while not data.endswith(b"\n") and (chunk := server.recv(1 << 16)):
        data += chunk
        if len(data) > ANSWER_MAX or time.monotonic() > deadline:
            raise OSError(27, f"its answer has no end after {len(data)} bytes")
    return bytes(data)


def decoded(line: bytes) -> dict[str, Any]:
    """Return an answer.  Raises errors.UNREADABLE."""
    return msgspec.json.decode(line, type=dict[str, Any])

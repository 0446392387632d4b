"""The report of a run that is under way, served to the browsers of this machine until the run is over.

Theory of operation
-------------------

One page and one stream of server-sent events, on 127.0.0.1 only, at a port that the system chooses and a path with a
random token.  Other processes and other pages cannot read it:

- another machine cannot connect, because the socket listens on the loopback address;
- another user or another page of the browser does not know the token; every other path is 404;
- a page of another origin whose name is made to point here (DNS rebinding) sends its own name as Host: 403;
- a connection that has not sent its request after 5 s is closed, and the oldest of such connections if there are more
  than 32, so that none keeps a browser out;
- the page itself may ask for nothing but its stream (the policy in the header).

The main thread makes the report again and again, and each connection has a thread that waits for a newer state.  A
report of eight hours takes a second to make, so the pause grows with that time, and nothing is made while no page
is open.  Nothing here runs in the training, or in the process that guards it.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")  # that a browser may call this server
EVERY = 2.0  # seconds between two states
SHARE = 10  # times that a state took to make: the pause before the next one, at least
ALIVE = 10.0  # seconds between two signs of life to a browser
LAST = 5.0  # seconds in which browsers get the last state
ASKING = 5.0  # seconds that a request may take to come
MOST_WAITING = 32  # connections at most whose request has not come; a browser opens six at once
STALLED = 30.0  # seconds after which a browser that takes nothing loses its connection


class State(NamedTuple):
    """A state of the page.  `number`: from 1; `page`: all of it; `changed`: what a page that is open puts in place."""

    number: int
    page: bytes
    changed: bytes
    policy: str


class Rendered(msgspec.Struct, frozen=True):
    """What an open page replaces: its body, its title, and the data of its charts."""

    title: str
    body: str
    data: str


class LiveServer(ThreadingHTTPServer):
    """Serves the newest state of a report.  `make`: returns the page, what has changed, and the page's policy."""

    daemon_threads = True
    request_queue_size = 128  # connections that come while others are accepted

    def __init__(self, make: Callable[[], tuple[str, Rendered, str]]) -> None:
        """Listen on a free port.  Raises OSError."""
        super().__init__((HOST, 0), _PageRequestHandler)
        self.token = secrets.token_urlsafe(24)
        self._make = make
        self._changed = threading.Condition()
        self._making = threading.Lock()
        self._state: State | None = None
        self._listeners = 0
        self._over = ""
        self._waiting: dict[socket.socket, float] = {}  # connections without a request -> when they are closed

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def is_for(self, host: str | None) -> bool:
        """Return whether a request's Host names this server."""
        return host in {f"{name}:{self.server_port}" for name in NAMES}

    def serve(self, is_running: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> None:
        """Serve until the run is over, and each browser has its last state.

        KeyboardInterrupt passes, after each browser has the word that the page is closed.
        """
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        why = "closed"
        try:
            while is_running():
                took = self.renew() if self._listeners else 0.0
                until = time.monotonic() + max(EVERY, SHARE * took)
                while time.monotonic() < until and is_running():
                    pause(0.2)
            self.renew()
            why = "over"
        finally:
            self._close(why)

    def renew(self) -> float:
        """Make the newest state; return the seconds that it took."""
        with self._making:
            begun = time.monotonic()
            page, changed, policy = self._make()
            with self._changed:
                number = self._state.number + 1 if self._state else 1
                self._state = State(number, page.encode(errors="replace"), msgspec.json.encode(changed), policy)
                self._changed.notify_all()
            return time.monotonic() - begun

    def _close(self, why: str) -> None:
        with self._changed:
            self._over = why
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._listeners, LAST)
        self.shutdown()
        self.server_close()

    def newest(self) -> State:
        """Return a state for a page that is opened now."""
        self.renew()
        assert self._state is not None  # noqa: S101 - renew has just made it
        return self._state

    def follow(self, send: Callable[[str, bytes], None]) -> None:
        """Send each newer state to a browser, until the page is closed.  Raises OSError if the browser has left."""
        seen = 0
        with self._changed:
            self._listeners += 1
        try:
            while True:
                state, over = self._next(seen)
                if state is not None and state.number > seen:
                    send("state", state.changed)
                    seen = state.number
                elif over:
                    send(over, b"{}")
                    return
                else:
                    send("alive", b"{}")
        finally:
            with self._changed:
                self._listeners -= 1
                self._changed.notify_all()

    def _next(self, seen: int) -> tuple[State | None, str]:
        """Return the newest state and why the page closes ("": it does not), once there is news or ALIVE has passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or (self._state and self._state.number > seen), ALIVE)
            return self._state, self._over

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to read a request; close the oldest connection without one if there are too many."""
        self._waiting[request] = time.monotonic() + ASKING
        for one in list(self._waiting)[:-MOST_WAITING]:
            self._cut(one)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close the connections whose request has not come; called several times a second."""
        now = time.monotonic()
        for one, until in list(self._waiting.items()):
            if until < now:
                self._cut(one)

    def has_asked(self, request: socket.socket) -> None:
        """Note that the request of a connection has come."""
        self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.has_asked(request)
        super().shutdown_request(request)

    def _cut(self, request: socket.socket) -> None:
        """End a connection for its thread, which closes it."""
        self.has_asked(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without asking for the name of this machine, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a browser that leaves is no error."""


class _PageRequestHandler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "stallguard", ""
    timeout = STALLED

    def parse_request(self) -> bool:
        """Return whether the request can be answered; the library calls this with its first line."""
        is_good = super().parse_request()
        self.server.has_asked(self.connection)
        return is_good

    def do_GET(self) -> None:
        """Answer a browser."""
        if not self.server.is_for(self.headers.get("Host")):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif self._asks_for(f"/{self.server.token}/"):
            state = self.server.newest()
            self._begin("text/html; charset=utf-8", state.policy, len(state.page))
            self.wfile.write(state.page)
        elif self._asks_for(f"/{self.server.token}/events"):
            self._begin("text/event-stream")
            self.server.follow(self._send)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _asks_for(self, path: str) -> bool:
        return hmac.compare_digest(self.path.encode(errors="replace"), path.encode())

    def _begin(self, kind: str, policy: str = "default-src 'none'", length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        fields = {
            "Content-Type": kind, "Cache-Control": "no-store",
            "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Connection": "close",
            "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
        }  # fmt: skip
        for name, value in fields.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send(self, event: str, data: bytes) -> None:
        self.wfile.write(b"event: %s\ndata: %s\n\n" % (event.encode(), data))  # JSON has no line ends
        self.wfile.flush()

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing: standard error is for what a user has to know."""

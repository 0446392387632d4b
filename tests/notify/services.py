"""Services on this machine that stand for those on the network: an HTTPS proxy that answers for every host, and SMTP.

The proxy opens no connection: it ends the encryption itself, with a certificate of an authority of the test, and
keeps each request.  So an address of Slack or Telegram can be used as a user writes it.
"""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

OK = 200


class Request(NamedTuple):
    """What a service got."""

    host: str
    path: str
    body: str


class Proxy:
    """Answers each request to each host with `code`.  `environment`: of a program that is to use it."""

    def __init__(self, place: Path, authority: trustme.CA) -> None:
        self.requests: list[Request] = []
        self.code, self.answer = OK, b'{"ok": true, "result": {}}'
        self.answers = {"hooks.slack.com": b"ok"}  # by host, if it has another one
        bundle = place / "authority.pem"
        authority.cert_pem.write_to_path(str(bundle))
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, host = "HTTP/1.1", ""

            def do_CONNECT(self) -> None:
                self.host = self.path.partition(":")[0]
                self.send_response(200)
                self.end_headers()
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                authority.issue_cert(self.host).configure_cert(context)
                self.request = self.connection = context.wrap_socket(self.connection, server_side=True)
                self.setup()
                self.close_connection = False

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.requests.append(Request(self.host, self.path, body.decode()))
                self.send_response(proxy.code)
                answer = proxy.answers.get(self.host, proxy.answer) if proxy.code == OK else proxy.answer
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def finish(self) -> None:
                super().finish()
                if self.host:
                    self.connection.close()

            def log_message(self, *_words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {
            "https_proxy": address, "HTTPS_PROXY": address, "no_proxy": "", "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(bundle), "SSL_CERT_FILE": str(bundle),
        }  # fmt: skip

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def mail_server(authority: trustme.CA, name: str, password: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of an SMTP server that demands encryption and a password, and the mails that it got."""
    mails: list[str] = []

    class Keep:
        async def handle_DATA(self, _server, _session, envelope) -> str:  # noqa: N802 - aiosmtpd looks for this name
            mails.append(envelope.content.decode())
            return "250 OK"

    def check(_server, _session, _envelope, _mechanism, data) -> AuthResult:
        is_right = (data.login, data.password) == (name.encode(), password.encode())
        return AuthResult(success=is_right, handled=is_right)

    class AnyPort(Controller):
        def _trigger_server(self) -> None:
            self.port = self.server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            super()._trigger_server()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    controller = AnyPort(
        Keep(), hostname="127.0.0.1", port=0, tls_context=context, authenticator=check, auth_required=True,
        require_starttls=True,
    )  # fmt: skip
    controller.start()
    try:
        yield controller.port, mails
    finally:
        controller.stop()

"""A server on the loopback interface that gives each request the answer that a test chooses."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time

MADE = (200, {"ETag": '"a"'}, b"")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answer
        status, headers, body = answer(self.command, self.path, sent) if callable(answer) else answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - names of the standard library

    def log_message(self, *_):
        pass


def refusal(code, message, status=403, **headers):
    """Return an answer of S3 that is an error."""
    text = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return status, headers, text.encode()


def credentials(key, seconds):
    """Return an answer of a machine's role: credentials that end in so many seconds."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    found = {"AccessKeyId": key, "SecretAccessKey": "s3cr3t", "Token": "t0k3n", "Expiration": end}
    return 200, {}, json.dumps(found).encode()


@contextlib.contextmanager
def serving(answer, tls=None):
    """Yield a server with `url`, `requests` and `headers`; its `answer` can be changed at any time."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.requests, server.headers, server.answer = [], [], answer
    server.url = f"{'https' if tls else 'http'}://localhost:{server.server_address[1]}"
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Stores to try: a folder, and a bucket of an S3 server in this process."""

from __future__ import annotations

import contextlib
import http.client
import io
import logging
import os
import threading
from urllib.parse import urlsplit

import pytest

from stallguard.fleet.store.folder_store import FolderStore


def one_at_a_time(application):
    """Return a WSGI application that answers one request after the other.

    A bucket decides a conditional write at once.  moto looks and writes in two steps, and its server has a thread for
    each request: of eight creations at once two can succeed.
    """
    turn = threading.Lock()

    def answer(environ, start_response):
        # Before its turn: a process that is stopped while it sends must not keep all others waiting.
        length = environ.get("CONTENT_LENGTH")
        if length:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with turn:
            return application(environ, start_response)

    return answer


@pytest.fixture(
    scope="session", autouse=True
)  # before each test looks for the threads that it must not leave
def s3_server():
    """Yield the variables with which a process reaches a server on the loopback interface."""
    pytest.importorskip("obstore")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    server._server.app = one_at_a_time(server._server.app)
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """Return the URL of an empty bucket; the variables of this process name its server."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    name = f"fleet-{os.urandom(4).hex()}"
    where = http.client.HTTPConnection(urlsplit(s3_server["AWS_ENDPOINT_URL"]).netloc, timeout=30)
    with contextlib.closing(where):
        where.request("PUT", f"/{name}")
        assert where.getresponse().status == 200
    return f"s3://{name}/lab"


@pytest.fixture
def folder(tmp_path):
    """Return a store in an empty folder."""
    (tmp_path / "store").mkdir()
    return FolderStore(tmp_path / "store")


@pytest.fixture(params=["file", "s3"])
def url(request, tmp_path):
    """Return the URL of an empty store, of each kind."""
    if request.param == "s3":
        return request.getfixturevalue("bucket")
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path / 'store'}"

"""A fleet to try: its file, the command line in its home, and stores: a folder, a bucket of a server here."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import io
import logging
import os
import threading
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from stallguard.errors import StallguardError
from stallguard.fleet.machines import founding
from stallguard.fleet.store.folder_store import FolderStore
from tests.fleet.lab import lab, mounted, quickly_tried  # noqa: F401 - fixtures


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


@pytest.fixture(scope="session", autouse=True)  # before each test looks for the threads that it must not leave
def s3_server():
    """Yield the variables with which a process reaches a server on the loopback interface."""
    pytest.importorskip("obstore")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home with an empty store beside it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "STALLGUARD_FLEET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def found(home, tmp_path):
    """A function that makes a fleet with this scheduler; it returns the content of its file."""
    pytest.importorskip("cryptography")

    def make(scheduler="127.0.0.1:1", *, store="store", file=None, now=None, days=30, name=""):
        (tmp_path / store).mkdir(exist_ok=True)
        place = file or home / ".config/stallguard/fleet.toml"
        when = now or dt.datetime.now(dt.UTC)
        url, by = f"file://{tmp_path / store}", founding.beside(place)
        with quickly_tried():
            return founding.found(url, scheduler, days, place, by, when, force=True, name=name)

    return make


@pytest.fixture
def fleet(home):
    """A function that runs `stallguard fleet`; it returns what is printed, or the lines of the error."""
    from stallguard.cli.fleet import command

    def run(*words, code=0):
        result = CliRunner().invoke(command, words)
        if isinstance(result.exception, StallguardError):
            assert result.exception.code == code, result.exception.lines()
            return "\n".join(result.exception.lines())
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run

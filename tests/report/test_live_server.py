"""The live report: served to this machine alone, renewed while its run goes on, closed with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stallguard.report import live_server
from stallguard.report.live_server import MOST_WAITING, LiveServer, Rendered
from tests.report.browser import MISSING, Browser

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import os, sys, time
import stallguard
while not os.path.exists(os.path.join(sys.path[0], "enough")):
    stallguard.beat()
    time.sleep(0.05)
print("done")
"""
LONG = 60.0  # seconds that something may take on a busy machine


def asked(server: LiveServer, path: str, host: str | None = None, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=LONG)
    connection.request(method, path, headers={"Host": host} if host else {})
    return connection.getresponse()


@pytest.fixture
def served():
    """A server of numbered pages whose run ends when `over` is set."""
    made = []

    def make():
        made.append(len(made) + 1)
        return f"<p>{made[-1]}</p>", Rendered("title", f"body {made[-1]}", "{}"), "default-src 'none'"

    server, over = LiveServer(make), threading.Event()
    thread = threading.Thread(target=server.serve, args=(lambda: not over.is_set(),))
    thread.start()
    yield server, over, made
    over.set()
    thread.join(LONG)
    assert not thread.is_alive()


def test_only_the_path_with_the_token_is_served(served):
    server, _, made = served
    path = f"/{server.token}/"

    assert asked(server, path).read() == b"<p>1</p>"
    for other in (
        "/",
        "/favicon.ico",
        path + "x",
        path.upper(),
        path + "?",
        f"/{'x' * len(server.token)}/",
        "/../etc/passwd",
    ):
        assert asked(server, other).status == 404, other
    assert made == [1]
    assert asked(server, path, method="POST").status == 501
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32


def test_hundreds_of_connections_that_ask_for_nothing_keep_no_browser_out(served, monkeypatch):
    server, _, _ = served
    monkeypatch.setattr(live_server, "ASKING", 2.0)
    idle = []
    try:
        for number in range(400):
            one = socket.create_connection(("127.0.0.1", server.server_port), timeout=LONG)
            idle.append(one)
            with contextlib.suppress(OSError):  # it has been closed already
                one.send(b"GET / HT" if number % 2 else b"")
        threads, begun = threading.active_count(), time.monotonic()

        assert asked(server, f"/{server.token}/").read().startswith(b"<p>")

        assert time.monotonic() - begun < 5.0
        assert threads < MOST_WAITING * 2 + 20
        for one in idle:  # the others lose their connection, too
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
    finally:
        for one in idle:
            one.close()


def test_a_request_that_comes_byte_by_byte_is_not_waited_for(served, monkeypatch):
    server, _, _ = served
    monkeypatch.setattr(live_server, "ASKING", 0.5)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=LONG) as slow:
        slow.sendall(f"GET /{server.token}/ HTTP/1.1\r\nX: ".encode())
        cut, begun = False, time.monotonic()
        while not cut and time.monotonic() - begun < LONG:
            time.sleep(0.05)
            try:
                slow.send(b"x")
            except OSError:
                cut = True

        assert cut


def test_a_page_of_another_name_cannot_read_it(served):
    server, _, made = served
    port = server.server_port

    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{port}",
        f"[::1]:{port}",
    ):
        assert asked(server, f"/{server.token}/", host).status == 403, host
    assert made == []
    answer = asked(server, f"/{server.token}/", f"localhost:{port}")
    assert answer.status == 200
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"


def test_states_follow_each_other_and_the_last_one_is_that_of_the_end(served):
    server, over, _ = served
    stream = asked(server, f"/{server.token}/events")
    assert stream.headers["Content-Type"] == "text/event-stream"

    def event():
        lines = [stream.readline().decode().rstrip() for _ in range(3)]
        return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

    first, second = event(), event()
    assert [name for name, _ in (first, second)] == ["state", "state"]
    assert first[1]["body"] != second[1]["body"]
    over.set()
    names = []
    while "over" not in names:
        names.append(event()[0])
    assert names[0] == "state"  # the one of the end
    assert stream.read() == b""


@pytest.fixture
def run(tmp_path):
    """A real run that trains until there is a file `enough`; its environment."""
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, "train.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as guarding:
        journal = tmp_path / "home" / "runs" / "latest" / "journal.jsonl"
        until(lambda: journal.exists() and b'"beats"' in journal.read_bytes())
        yield environment
        (tmp_path / "enough").touch()
        guarding.wait(LONG)


def until(condition, seconds: float = LONG):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


@pytest.fixture
def live(run):
    """Return a function that starts a live report of the run; all that are left are ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stallguard", "report", "--live", *words]
        started.append(subprocess.Popen(command, env=run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.terminate()
        with one:
            one.wait(LONG)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_browser_follows_a_real_run_to_its_end(live, tmp_path, leaves_nothing_behind):
    serving = live("--json")
    url = json.loads(serving.stdout.readline())["url"]
    assert urlsplit(url).hostname == "127.0.0.1"
    browser = Browser()
    try:
        browser.devtools("Page.navigate", url=url)
        batches = "return [...document.querySelectorAll('.figures dd')].map((one) => one.textContent)[0] || ''"
        until(lambda: "live" in browser.script("return (document.getElementById('live') || {}).textContent || ''"))
        assert browser.script("return document.getElementById('badge').textContent") == "running"
        # A page of the first moments has no lane yet.
        until(lambda: browser.script("return document.getElementById('lane') !== null"))
        before = browser.script(batches)
        browser.script("""
            document.querySelector("details").open = true;
            document.getElementById("lane").focus();
            window.kept = true;
        """)
        until(lambda: browser.script(batches) != before)
        assert browser.script("return document.querySelector('details').open")
        assert browser.script("return document.activeElement.id") == "lane"
        assert browser.script("return document.querySelectorAll('#lane canvas').length") == 1

        (tmp_path / "enough").touch()
        until(lambda: browser.script("return document.getElementById('badge').textContent") == "finished")
        until(lambda: "the run is over" in browser.script("return document.getElementById('live').textContent"))
        assert browser.script("return window.kept")  # the page was never loaded again
        assert browser.complaints() == []
    finally:
        browser.close()
        serving.wait(LONG)
    assert serving.returncode == 0
    assert serving.stderr.read() == ""


def test_ctrl_c_closes_it_and_leaves_the_run_alone(run, live):
    serving = live()
    url = urlsplit(serving.stdout.readline().strip())
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=LONG)
    connection.request("GET", f"{url.path}events")
    stream = connection.getresponse()
    assert stream.readline() == b"event: state\n"
    serving.send_signal(signal.SIGINT)

    assert b"event: closed\n" in stream.read()
    assert serving.wait(LONG) == 130
    assert "Traceback" not in serving.stderr.read()
    status = [sys.executable, "-m", "stallguard", "status", "--json"]
    assert subprocess.run(status, env=run, capture_output=True, check=False).returncode == 0


def test_a_run_that_is_over_has_no_live_page(live, tmp_path):
    (tmp_path / "enough").touch()
    until((tmp_path / "home" / "runs" / "latest" / "outcome.json").exists)
    serving = live()
    _, said = serving.communicate(timeout=LONG)

    assert serving.returncode == 1
    assert "is over: finished" in said
    assert "--open" in said

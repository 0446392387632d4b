"""A bucket that refuses, hangs or is away: what is said, and how long it takes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from stallguard.fleet.store import StoreError, object_store
from stallguard.fleet.store.opening import open_store
from tests.fleet.scripted_s3 import MADE, refusal, serving

ROOT = Path(__file__).parents[3]
ACTS = {
    "create": lambda store: store.create("k", b"1"),
    "replace": lambda store: store.replace("k", b"1"),
    "read": lambda store: store.read("k"),
    "names": lambda store: store.names("k"),
    "versions": lambda store: store.versions("k"),
    "get": lambda store: store.get("k", Path(os.environ["TMPDIR"]) / "absent"),
    "put": lambda store: store.put("k", Path(__file__)),
    "remove": lambda store: store.remove("k"),
}


@pytest.fixture
def s3(tmp_path, monkeypatch):
    """Yield a function that returns a store in a bucket of a scripted server."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")

    def opened(url):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        return open_store("s3://bucket/lab")

    return opened


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    ("answer", "says", "most"),
    [
        (refusal("AccessDenied", "Access Denied"), "Access Denied", 2),
        (refusal("InvalidAccessKeyId", "The key does not exist."), "The key does not exist.", 2),
        (refusal("SignatureDoesNotMatch", "The signature &amp; all."), "The signature & all.", 2),
        (refusal("ExpiredToken", "The token has expired.", 400), "The token has expired.", 2),
        (refusal("NoSuchBucket", "The bucket does not exist", 404), "there is no bucket bucket", 2),
        (refusal("SlowDown", "Please reduce your request rate.", 503), "Please reduce your request rate.", 4),
        ((502, {}, b"<html>Bad Gateway</html>"), "its server answers 502 Bad Gateway", 4),
    ],
    ids=["denied", "wrong key", "wrong secret", "ended", "no bucket", "overloaded", "a gateway"],
)  # fmt: skip
def test_what_s3_refuses_is_said_in_its_words_after_few_tries(s3, act, answer, says, most):
    """A creation that fails is read too, in case it was done."""
    with serving(answer) as server:
        store = s3(server.url)
        with pytest.raises(StoreError) as raised:
            ACTS[act](store)
        assert says in str(raised.value)
        assert len(str(raised.value)) < 200
        assert len(server.requests) <= (most if act == "create" else most / 2)


@pytest.mark.parametrize("act", ACTS)
def test_a_server_that_is_away_is_named_with_the_reason(s3, act):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(StoreError, match=f"{url} cannot be reached: Connection refused"):
        ACTS[act](s3(url))


def test_a_name_that_is_not_known_is_said(s3):
    with pytest.raises(StoreError, match=r"http://absent\.invalid cannot be reached: .*(lookup|not known)"):
        s3("http://absent.invalid").read("k")


@pytest.mark.parametrize("act", ACTS)
def test_a_server_that_never_answers_costs_a_limited_time(s3, act, monkeypatch):
    monkeypatch.setattr(object_store, "READ", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store, began = s3(f"http://127.0.0.1:{silent.getsockname()[1]}"), time.monotonic()
        with pytest.raises(StoreError, match="does not answer in time"):
            ACTS[act](store)
    assert time.monotonic() - began < 10


def test_of_creations_that_meet_the_one_that_is_refused_reads_what_the_other_wrote(s3):
    """S3 answers 409 to one of two conditional writes that meet."""

    def answer(method, path, sent):
        if method == "PUT":
            return refusal("ConditionalRequestConflict", "try again", 409)
        return 200, {"ETag": '"a"', "Last-Modified": "Thu, 26 Nov 2026 10:00:00 GMT"}, b"another's"

    with serving(answer) as server:
        store = s3(server.url)
        assert not store.create("k", b"mine")
        assert store.create("k", b"another's")


def test_a_server_that_cannot_write_conditionally_is_an_error_and_not_a_creation(s3):
    def answer(method, path, sent):
        return (
            refusal("NotImplemented", "A header is not implemented.", 501)
            if method == "PUT"
            else refusal("NoSuchKey", "no", 404)
        )

    with serving(answer) as server, pytest.raises(StoreError, match="A header is not implemented"):
        s3(server.url).create("k", b"1")


def test_a_creation_whose_answer_is_lost_finds_its_own_data(s3):
    """The server has written, and answers 500; the second try meets what the first wrote."""
    kept = {}

    def answer(method, path, sent):
        if method == "GET":
            return 200, {"ETag": '"a"', "Last-Modified": "Thu, 26 Nov 2026 10:00:00 GMT"}, kept[path]
        if path in kept:
            return refusal("PreconditionFailed", "it is there", 412)
        kept[path] = sent
        return refusal("InternalError", "an error", 500)

    with serving(answer) as server:
        store = s3(server.url)
        assert store.create("k", b"mine")
        assert not store.create("k", b"another's")


def test_keys_are_written_as_they_are(s3):
    """Another member, of another version, must find them."""
    with serving(MADE) as server:
        s3(server.url).replace("beats/job.a_b-1@12", b"1")
        assert server.requests == ["PUT /bucket/lab/beats/job.a_b-1%4012"]


def test_a_folder_that_another_program_made_is_no_name(bucket):
    """Consoles of S3 make an empty key "folder/" for it."""
    import botocore.session

    store = open_store(bucket)
    store.replace("jobs/a/log/1", b"1")
    store.replace("jobs/ab/log/1", b"1")
    client = botocore.session.get_session().create_client("s3")
    client.put_object(Bucket=bucket.split("/")[2], Key="lab/jobs/a/", Body=b"")
    assert sorted(store.names("jobs")) == ["a", "ab"]
    assert store.names("jobs/a") == ["log"]
    assert store.versions("jobs/a") == {}
    store.remove("jobs/a")
    assert store.read("jobs/a/log/1") is None
    assert store.read("jobs/ab/log/1") == b"1"


@pytest.mark.costly
def test_more_than_a_page_of_keys_is_listed_and_removed(bucket):
    from concurrent.futures import ThreadPoolExecutor

    store = open_store(bucket)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: store.replace(f"many/{number:04}", b"1"), range(1100)))
    assert len(store.names("many")) == len(store.versions("many")) == 1100
    store.remove("many")
    assert store.names("many") == []


@pytest.mark.parametrize("size", [0, 1000, 12 << 20], ids=["empty", "small", "in parts"])
def test_a_file_comes_back_as_it_was_put(bucket, tmp_path, size):
    store, content = open_store(bucket), os.urandom(size)
    (tmp_path / "source").write_bytes(content)
    store.put("data/1", tmp_path / "source")
    assert store.get("data/1", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert not store.get("data/2", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.waits
def test_a_slow_line_has_longer_for_much(s3, tmp_path, monkeypatch):
    """obstore counts the time for sending as time without an answer."""
    monkeypatch.setattr(object_store, "READ", 0.3)
    (tmp_path / "file").write_bytes(bytes(object_store.SMALL + 1))

    def answer(method, path, sent):
        time.sleep(1)
        return MADE

    with serving(answer) as server:
        store = s3(server.url)
        store.put("k", tmp_path / "file")
        store.replace("k", bytes(object_store.SMALL + 1))
        with pytest.raises(StoreError):
            store.replace("k", b"small")


def test_ctrl_c_ends_a_program_that_waits_for_a_bucket(s3):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        code = "from stallguard.fleet.store.opening import open_store; open_store('s3://bucket/lab').replace('k', b'1')"
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE, text=True)
        connection, _ = silent.accept()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        connection.close()
    assert "KeyboardInterrupt" in said
    assert time.monotonic() - began < object_store.READ / 2


@pytest.mark.costly
def test_many_requests_at_once_are_answered(bucket):
    store = open_store(bucket)
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(store.create(f"k/{n}", b"1"))) for n in range(64)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert done == [True] * 64

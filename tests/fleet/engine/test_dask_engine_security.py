"""No port of a fleet answers who is not a member: each port of real Dask servers is tried."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.engine.dask_engine import renew, security
from stallguard.fleet.machines import authority, founding, member_tls
from stallguard.fleet.store import membership
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.signing import Signatures
from tests.fleet.members import invited

pytest.importorskip("distributed")
pytest.importorskip("cryptography")
CHILD = Path(__file__).parents[1] / "children" / "dask_pair.py"
PATIENCE = 60


@contextlib.contextmanager
def running(tmp_path, *words, **env):
    """Yield what the child says, while it runs."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(tmp_path / "dask"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])} | env,
    )  # fmt: skip
    watch = threading.Timer(PATIENCE, child.kill)
    watch.start()
    try:
        line = child.stdout.readline()
        if not line:
            pytest.fail(child.stderr.read()[-2000:])
        yield json.loads(line)
    finally:
        watch.cancel()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=20)
        child.kill()
        child.communicate()


def answer_to(place, context=None, say=b"GET /sitemap.json HTTP/1.0\r\n\r\n"):
    """Return what a port answers to a stranger, or why it does not."""
    try:
        with (
            socket.create_connection(place, timeout=5) as plain,
            context.wrap_socket(plain) if context else contextlib.nullcontext(plain) as line,
        ):
            line.settimeout(5)
            line.sendall(say)
            return line.recv(1 << 16)
    except OSError as error:
        return type(error).__name__


def anonymous():
    """Return TLS without a certificate of one's own, that trusts everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


REFUSALS = (b"", "SSLError", "SSLZeroReturnError", "SSLEOFError", "ConnectionResetError", "BrokenPipeError")


@pytest.mark.costly
def test_each_port_gives_nothing_to_plain_tcp_or_to_tls_without_a_certificate_of_the_fleet(found, tmp_path):
    member, stranger = found(), found(store="other", file=tmp_path / "stranger.toml")
    with running(tmp_path) as said:
        assert said["sum"] == 3, "the members themselves compute"
        assert len(said["ports"]) == 2, "one port each for scheduler and worker"
        for port in map(tuple, said["ports"]):
            assert answer_to(port) in REFUSALS
            assert answer_to(port, anonymous()) in REFUSALS
            own_certificate = member_tls.context(stranger)
            own_certificate.verify_mode = ssl.CERT_NONE
            assert answer_to(port, own_certificate) in REFUSALS
            old = anonymous()
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            assert answer_to(port, old) in REFUSALS
            with pytest.raises(ssl.SSLCertVerificationError):  # and the stranger would not talk to it either
                _handshake(port, member_tls.context(stranger))
            assert _handshake(port, member_tls.context(member))["subject"]


def _handshake(place, context):
    with socket.create_connection(place, timeout=5) as plain, context.wrap_socket(plain) as line:
        return line.getpeercert()


@pytest.mark.whole
def test_dasks_own_http_servers_would_answer_anybody(found, tmp_path):
    """What the rest of this file relies on: with Dask's classes as they are, there are ports without TLS."""
    found()
    with running(tmp_path, "plain") as said:
        answers = map(answer_to, map(tuple, said["ports"]))
        assert any(b"HTTP/1.1" in answer for answer in answers if isinstance(answer, bytes))


@pytest.mark.whole
def test_the_port_of_the_dashboard_is_on_the_loopback_interface_and_speaks_tls(found, tmp_path):
    found()
    with running(tmp_path, "dashboard") as said:
        ports = [tuple(port) for port in said["ports"]]
        assert len(ports) == 3
        assert {host for host, _ in ports} == {"127.0.0.1"}
        assert {answer for port in ports if (answer := answer_to(port)) not in REFUSALS} == set()


@pytest.mark.whole
def test_no_machine_needs_to_reach_the_port_of_a_worker(found, tmp_path):
    """docs/fleet.md says that a firewall can close it: starts and ends go by the connection of the worker."""
    found()
    with running(tmp_path, "closed") as said:
        assert (said["machines"], said["left"]) == (1, 0)
        assert said["states"] == ["finished", "error"]
        assert "no number" in said["error"], "why a start failed comes by the same connection"


@pytest.mark.costly
def test_a_worker_of_another_fleet_is_refused_and_says_why(found, tmp_path, home):
    stranger = tmp_path / "stranger.toml"
    found(store="other", file=stranger)
    found()
    with running(tmp_path, "stranger", STRANGER=str(stranger)) as said:
        assert "another fleet" in member_tls.refusal(said["refused"]), said["refused"]
        ours = found(said["scheduler"].removeprefix("tls://"), store="third", file=tmp_path / "third.toml")
        found_out = member_tls.reach(ours, 5.0)
        assert "another fleet" in found_out.trouble
        assert found_out.lasting


def test_the_scheduler_is_reached_with_the_certificate_of_its_fleet_alone(found, tmp_path):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        member = found(address)
        stranger = found(address, store="other", file=tmp_path / "stranger.toml")
        assert _tried(listening, member_tls.context(member, is_server=True), member) == ""
        assert "another fleet" in _tried(listening, member_tls.context(stranger, is_server=True), member)
        assert "another fleet" in _tried(listening, member_tls.context(member, is_server=True), stranger)
        assert "does not speak TLS" in _tried(listening, None, member)
    assert member_tls.reach(member, 2.0) == ("Connection refused", False)


def _tried(listening, context, member):
    """Return what a member says of a server that greets it."""

    def serve():
        plain, _ = listening.accept()
        with plain, contextlib.suppress(OSError):
            if context is None:
                plain.sendall(b"220 a server of another kind\r\n")
            else:
                with context.wrap_socket(plain, server_side=True) as line:
                    line.sendall(b"greeting")
                    line.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    try:
        return member_tls.reach(member, 5.0).trouble
    finally:
        server.join(10)


def test_a_silent_port_costs_a_bounded_time(found):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        member = found(f"127.0.0.1:{listening.getsockname()[1]}")
        began = time.monotonic()
        assert member_tls.reach(member, 0.3).trouble
        assert time.monotonic() - began < 5


def test_certificates_that_cannot_be_used_are_one_clear_error(found):
    one, other = found(), found(store="other")
    for broken in (replace(one, ca="no certificate\n"), replace(one, key=other.key), replace(one, certificate="\n")):
        with pytest.raises(StallguardError, match="cannot be used") as error:
            security(Signatures(broken))
        assert error.value.code == CANNOT_RUN


@pytest.mark.whole
def test_settings_of_the_user_open_no_port(found, tmp_path):
    found()
    hostile = {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "False",
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "['distributed.http.scheduler.api']",
        "DASK_DISTRIBUTED__WORKER__PRELOAD": "['http.server']",
        "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tcp",
    }
    with running(tmp_path, **hostile) as said:
        assert len(said["ports"]) == 2
        assert {answer for port in said["ports"] if (answer := answer_to(tuple(port))) not in REFUSALS} == set()


# ---- members --------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_a_revoked_member_is_cut_off_and_refused_and_no_member_can_be_another_ones_machine(found, tmp_path, home):
    found(name="ann")
    founder = home / ".config/stallguard/fleet.toml"
    files = [invited(founder, name) for name in ("mini", "pro")]
    made = authority.load(founding.beside(founder), member_of(founder).fleet)
    for name in ("mini", "ann"):
        made = made.revoke(name, dt.datetime.now(dt.UTC))
        files.append(tmp_path / f"{name}.pem")
        files[-1].write_text(made.revoked())
    words = [str(path) for path in (tmp_path / "dask", *files)]
    done = subprocess.run(
        [sys.executable, str(CHILD.parent / "dask_members.py"), *words], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}, timeout=3 * PATIENCE,
    )  # fmt: skip
    assert done.stdout, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert "ann does not belong to mini, whose certificate it shows" in said["stolen name"]
    assert said["before"] == ["mini.a#1", "pro#1"]
    assert (said["trouble"], said["dropped"], said["after"]) == ("", ["mini"], ["pro#1"])
    assert "revoked" in member_tls.refusal(said["again"]), said["again"]
    assert (said["dropped by the worker"], said["last"]) == (["ann"], [])


def test_a_scheduler_refuses_a_revoked_member_at_its_first_message(found, tmp_path, home):
    """Before anything that it sends is read: who is read can run code there."""
    found(name="ann")
    founder = home / ".config/stallguard/fleet.toml"
    lost = member_of(invited(founder, "mini"))
    mine, store = Signatures(member_of(founder)), open_store(lost.store)
    own = security(mine)
    server = own.get_listen_args("scheduler")["ssl_context"]
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        lost = replace(lost, scheduler=f"tls://127.0.0.1:{listening.getsockname()[1]}")
        assert _tried(listening, server, lost) == ""
        founding.revoke(mine.member, "mini", founding.beside(founder), dt.datetime.now(dt.UTC))
        mine.refresh(store)
        renew(own, mine)  # the context that it listens with
        assert "a certificate is revoked" in _tried(listening, server, lost)


def member_of(file):
    return membership.required({"STALLGUARD_FLEET": str(file)})


def test_a_revoked_member_cannot_take_up_a_session_of_before(found, home):
    """OpenSSL does not look at the certificate again when it resumes a session."""
    found(name="ann")
    founder = home / ".config/stallguard/fleet.toml"
    lost = member_of(invited(founder, "mini"))
    mine = Signatures(member_of(founder))
    own = security(mine)
    server, client = own.get_listen_args("scheduler")["ssl_context"], member_tls.context(lost)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        session, greeting = _greeted(listening, server, client)
        assert greeting == b"greeting"
        founding.revoke(mine.member, "mini", founding.beside(founder), dt.datetime.now(dt.UTC))
        mine.refresh(open_store(lost.store))
        renew(own, mine)
        with pytest.raises(ssl.SSLError, match=r"(?i)revoked"):
            _greeted(listening, server, client, session)


def _greeted(listening, server, client, session=None):
    """Return the session of a client, and what it is greeted with."""

    def serve():
        plain, _ = listening.accept()
        with plain, contextlib.suppress(OSError), server.wrap_socket(plain, server_side=True) as line:
            line.sendall(b"greeting")
            line.recv(1)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with (
            socket.create_connection(listening.getsockname(), timeout=5) as plain,
            client.wrap_socket(plain, session=session) as line,
        ):
            said = line.recv(16)
            return line.session, said
    finally:
        serving.join(10)

"""Another user who reaches a socket of a run is not answered, and counts no batch; nor is one's own client misled."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.core.events import Heartbeat, ProbeNote
from stallguard.errors import StallguardError
from stallguard.probe import wire
from stallguard.storage import paths
from stallguard.supervisor import control
from tests.supervisor.listening import TOKEN, Ear

AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform == "darwin", reason="becomes another user, whom Linux names to the receiver"
)
ANOTHER = 65534


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that is open to others, as none of stallguard's is: the last wall is tested."""
    made = paths.socket_dir("/tmp")
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def ear(place: Path, tmp_path: Path) -> Iterator[Ear]:
    made = Ear(place, tmp_path)
    yield made
    made.beats.close()
    for probe in made.probes:
        probe.end()


def as_another(code: str, *words: str) -> str:
    """Run Python code as another user; return what it prints."""
    script = f"import os, socket, sys\nos.setgid({ANOTHER}); os.setuid({ANOTHER})\n{code}"
    command = [sys.executable, "-I", "-S", "-c", script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@AS_ROOT
def test_another_user_is_not_answered(place: Path) -> None:
    posted: list[object] = []
    desk = control.Control(place / "control", posted.append, time.monotonic, lambda: {"state": "x"})
    (place / "control").chmod(0o666)
    code = """
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
try:
    link.sendall(b'{"verb":"stop"}\\n')
    print(link.recv(4096))
except OSError as error:
    print(type(error).__name__)
"""
    try:
        said = as_another(code, str(place / "control"))
        own = control.ask(str(place / "control"), "status")
    finally:
        desk.close()

    assert said.strip() in ("b''", "ConnectionResetError", "BrokenPipeError")
    assert posted == []
    assert own == {"state": "x"}


@AS_ROOT
def test_a_record_of_another_user_counts_no_batch_even_with_the_token(place: Path, ear: Ear) -> None:
    probe = ear.probe()
    (place / "beats").chmod(0o666)
    probe.set(beats=99)
    code = "link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\nlink.connect(sys.argv[1])\n"
    code += "link.send(bytes.fromhex(sys.argv[2]))"
    as_another(code, str(place / "beats"), wire.pack(probe.values).hex())
    probe.send(beats=2)
    heartbeat = ear.next()
    ear.beats.exited(0, None)
    notes = [event.text for event in ear.until_exit() if isinstance(event, ProbeNote)]

    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.beats, probe.values[wire.SLOT["token"]]) == (2, TOKEN)
    assert notes == ["messages on the probe's socket that were left out: 1 of another user"]


@AS_ROOT
def test_descriptors_that_another_process_sends_are_not_taken(place: Path, ear: Ear) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, Path(os.devnull).open() as file:
        link.connect(str(place / "beats"))
        for _ in range(50):
            socket.send_fds(link, [b"x"], [file.fileno()])
        probe = ear.probe()
        probe.send(beats=2)
        ear.next()
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 25  # fifty were sent


@pytest.fixture
def impostor(place: Path) -> Iterator[tuple[socket.socket, str]]:
    """Return a listening socket at the address that a copied run names."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "control"))
        server.listen(4)
        yield server, str(place / "control")


def serve(server: socket.socket, pieces: Iterator[bytes]) -> threading.Thread:
    def answer() -> None:
        link, _ = server.accept()
        with link:
            try:
                for piece in pieces:
                    link.sendall(piece)
            except OSError:
                pass

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def test_an_answer_without_an_end_is_an_error(
    impostor: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWER_MAX", 1 << 20)
    thread = serve(impostor[0], iter(lambda: b"x" * 65536, b""))
    with pytest.raises(StallguardError, match="does not answer"):
        control.ask(impostor[1], "status")
    thread.join(30)


@pytest.mark.parametrize("line", [b"[]\n", b"7\n", b"null\n", b"\xff\n", b"[" * 5000 + b"\n", b""])
def test_an_answer_that_is_none_is_an_error(impostor: tuple[socket.socket, str], line: bytes) -> None:
    thread = serve(impostor[0], iter([line]))
    with pytest.raises(StallguardError, match="does not answer"):
        control.ask(impostor[1], "status")
    thread.join(30)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_client_asks_no_server_of_another_user(
    impostor: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    monkeypatch.setattr(control, "ROOT", -1)
    with pytest.raises(StallguardError) as error:
        control.ask(impostor[1], "status")

    assert "another user" in error.value.why

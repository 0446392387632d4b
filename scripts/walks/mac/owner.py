"""Whose Mac this is: the names that must not be in a file that leaves it.

The tools are asked; one that is absent, refuses or takes too long says nothing.  Must not keep an answer.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

SECONDS = 5.0  # for a tool to answer
SCUTIL, IOREG, IPCONFIG = "/usr/sbin/scutil", "/usr/sbin/ioreg", "/usr/sbin/ipconfig"
PLATFORM = re.compile(r'"(?:IOPlatformSerialNumber|IOPlatformUUID)" = "([^"]+)"')
NETWORK = re.compile(r"^\s*(?:SSID|BSSID) : (.+)$", re.MULTILINE)  # <redacted> since macOS 15.6
ACCOUNTS = re.compile(r"^\s*(?:AccountID|DisplayName|AccountDescription) = \"?([^\";]+)\"?;$", re.MULTILINE)


def names() -> Iterator[tuple[str, str]]:
    """Yield (kind, name): of the user, of the machine, of its network, its serial numbers."""
    with contextlib.suppress(OSError, KeyError):  # a user without an entry
        yield "user", getpass.getuser()
        import pwd

        yield "user", pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0]
    for key in ("user.name", "user.email"):
        yield "user", _said("git", "config", "--global", key)
    host = platform.node()
    hosts = [host, host.partition(".")[0], socket.gethostname()]
    if sys.platform == "darwin":
        hosts += [_said(SCUTIL, "--get", name) for name in ("ComputerName", "LocalHostName", "HostName")]
        yield "user", _said("/usr/bin/id", "-F")
        accounts = _said("/usr/bin/defaults", "read", "MobileMeAccounts")
        yield from (("user", name) for name in ACCOUNTS.findall(accounts))
        yield from (("serial", one) for one in PLATFORM.findall(_said(IOREG, "-rd1", "-c", "IOPlatformExpertDevice")))
        for interface in ("en0", "en1"):
            found = NETWORK.findall(_said(IPCONFIG, "getsummary", interface))
            yield from (("network", name) for name in found if "redacted" not in name)
    yield from (("machine", name) for name in dict.fromkeys(hosts) if name not in ("", "localhost"))


def _said(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""Sleep settings of systemd-logind.  A desktop's own settings are not read; NVML reports GPUs, not this module.

Must not judge what it reads.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable
from pathlib import Path

from stallguard.host.types import ListedGpu, Sleep

LOGIND = "/etc/systemd/logind.conf"
IDLE, UNIT = 1800.0, {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}  # logind.conf(5)
NEVER = 0.0


def sleep() -> Sleep | None:
    """Return what logind does with an idle machine; None if there is no logind."""
    if not Path("/run/systemd/seats").is_dir():
        return None
    files = [Path(LOGIND), *sorted(Path(f"{LOGIND}.d").glob("*.conf"))]
    return parse_logind(path.read_text(errors="replace") for path in files if path.is_file())


def parse_logind(texts: Iterable[str]) -> Sleep:
    """Return the setting that the files make together, later ones first; logind's default is never."""
    login: dict[str, str] = {}
    for text in texts:
        parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        try:
            parser.read_string(text)
        except (
            configparser.Error,
            AttributeError,
        ):  # the latter for a line that continues a name without a value
            continue  # logind skips what it cannot read, too
        login |= (
            {name: value or "" for name, value in parser.items("Login")}
            if parser.has_section("Login")
            else {}
        )
    sleeps = login.get("idleaction", "ignore") in (
        "suspend",
        "hibernate",
        "hybrid-sleep",
        "suspend-then-hibernate",
    )
    if not sleeps:
        return Sleep(after=NEVER)
    parts = re.findall(r"(\d+)\s*([a-z]*)", login.get("idleactionsec", ""))
    return Sleep(after=sum(float(number) * UNIT.get(unit, 1.0) for number, unit in parts) or IDLE)


def wakes() -> tuple[str, ...]:
    """Return nothing: a timer that wakes a Linux machine belongs to root."""
    return ()


def gpus() -> tuple[ListedGpu, ...] | None:
    """Return None: the device sensor asks NVML."""
    return None

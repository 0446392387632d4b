"""Sends the trace of a run by a process of its own, if an address is set.

The SDK of OpenTelemetry, its exporter, and the journal of a whole run take time and memory that a supervisor must not
keep.  Must not raise, and must not import what the trace is made with (trace_export.py).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NO_SDK = (
    "metrics.otlp is set and OpenTelemetry is not installed: no trace is sent; "
    "install stallguard from its clone with the extra: uv tool install --force '.[otel]'"
)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PATIENCE = 10.0  # seconds for the whole program
ROOT = Path(__file__).resolve().parents[2]  # as the child's directory: nothing of the user's can be imported


def is_installed() -> bool:
    """Return whether the extra `otel` is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ImportError:
        return False


def is_wanted(address: str, env: Mapping[str, str]) -> bool:
    """Return whether an address is set.  `address`: the setting metrics.otlp."""
    return bool(address) or any(env.get(name) for name in ENDPOINTS)


def send(run: Path, address: str, env: Mapping[str, str]) -> str:
    """Send the trace of a run by a process of its own; return why that failed, "" if it was accepted.

    `address`: the setting metrics.otlp; "" for that of the environment.
    """
    environment = dict(env) | ({ENDPOINTS[0]: address} if address else {})
    if address:
        environment.pop(ENDPOINTS[1], None)
    command = [sys.executable, "-P", "-m", "stallguard.report.trace_export", str(run.resolve())]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it was not accepted within {PATIENCE:g} s"
    except OSError as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (words[-1] if words else f"exit code {done.returncode}")

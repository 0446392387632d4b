"""The guards against faults around a training: of stallguard itself, its start, its sockets and its disks."""

from __future__ import annotations

from .fault import Change, Guards

_NEVER_TAKEN_UP = Change(
    "supervisor/sockets.py", "if identity(self.path) == self._is:\n            return False", "return False"
)
_NO_ROOM = Change("supervisor/guard.py", "        run_files.keep_room(context.directory)", "        pass")

# ---- faults of stallguard itself ------------------------------------------------------------------------------

_SUPERVISOR: Guards = {
    "supervisor-killed": (
        Change(
            "launch/earlier_run.py", 'run_files.recall_attempt(run) if run_files.state(run) == "lost" else None', "None"
        ),
        Change("supervisor/standby.py", "read -r _ <&2 && exit 0", "exit 0"),
    ),
    "supervisor-killed-and-stopped-by-hand": (
        Change("launch/earlier_run.py", "left = sweep(attempt.process.pid, grace)", "left: list[int] = []"),
    ),
    "job-killed-three-times": (
        Change(
            "supervisor/detached_run.py",
            "launcher.adopt(before, known if before.number == run.current.number else ())",
            "pass",
        ),
    ),
    "job-killed-and-training-ends": (Change("supervisor/waiter.py", "os.pwrite(kept, code, 0)", "pass"),),
    "job-and-training-killed": (Change("supervisor/waiter.py", "os.pwrite(kept, code, 0)", "pass"),),
    "supervisor-stopped": (
        Change("core/detection/verdict.py", "max(limits.longest_tick, steady)", "max(1e9, steady)"),
        Change("core/detection/verdict.py", "passed - steady > limits.starved", "passed - steady > 1e9"),
        Change("supervisor/loop.py", "if gap is not None:", "if False:"),
    ),
    "supervisor-stopped-at-the-end": (Change("supervisor/output.py", "LAST = 1 << 20  # bytes", "LAST = 0  # bytes"),),
    "supervisor-out-of-memory": (
        Change(
            "supervisor/evidence_collector.py", "        except REFUSALS as error:", "        except KeyError as error:"
        ),
        Change(
            "supervisor/loop.py",
            "            yield\n        except Exception as error:",
            "            yield\n        except KeyError as error:",
        ),
        Change("worker.py", "if held() is None:", "if False:"),
    ),
    "supervisor-out-of-descriptors": (
        Change(
            "supervisor/heartbeats.py",
            "        with contextlib.suppress(OSError):\n            for path in self._pages.glob",
            "        with contextlib.suppress():\n            for path in self._pages.glob",
        ),
    ),
}

# ---- odd conditions at its start ------------------------------------------------------------------------------

_CONDITIONS: Guards = {
    "supervisor-too-little-memory": (Change("launch/request.py", "    _refuse_too_little_memory()\n", ""),),
    "supervisor-few-descriptors": (Change("launch/request.py", "    _refuse_too_few_descriptors()\n", ""),),
    "child-signal-ignored": (Change("supervisor/signals.py", "signal.signal(signal.SIGCHLD, signal.SIG_DFL)", "pass"),),
    "signals-blocked-at-start": (
        Change("core/shutdown.py", "deadline=run.now + limits.stop.grace)", "deadline=math.inf)"),
    ),
    "standard-descriptors-closed": (Change("supervisor/terminal_lines.py", '"closed": "none"}', '"closed": "pipe"}'),),
    "warnings-are-errors": (
        Change(
            "storage/private.py",
            '    with open(path, "wb", opener=opener) as file:\n        file.write(data)',
            '    open(path, "wb", opener=opener).write(data)',
        ),
    ),
    "packages-hidden": (Change("cli/__init__.py", "    _prefer_own_packages()\n", ""),),
    "installation-damaged": (
        Change("supervisor/session.py", "            if not is_new:\n                raise\n", "            raise\n"),
    ),
    "umask-000": (Change("storage/private.py", "DIRECTORY, FILE = 0o700, 0o600", "DIRECTORY, FILE = 0o755, 0o644"),),
}

# ---- sockets ----------------------------------------------------------------------------------------------------

_SOCKETS: Guards = {
    "sockets-removed": (_NEVER_TAKEN_UP,),
    "socket-directory-removed": (
        Change("supervisor/heartbeats.py", 'for path in self._pages.glob("*.page"):', "for path in list[Path]():"),
    ),
    "sockets-replaced": (Change("supervisor/sockets.py", "return facts.st_dev, facts.st_ino", "return 0, 0"),),
    "sockets-replaced-by-files": (
        Change("supervisor/sockets.py", "        self.path.unlink(missing_ok=True)\n        before", "        before"),
    ),
    "socket-full": (  # what was refused is sent again, and the page shows what was not sent
        Change(
            "probe/sender.py",
            "            if error.errno not in BUSY:\n                self._hang_up()\n            return False",
            "            raise",
        ),
        Change("supervisor/heartbeats.py", "self.pending = self._read() or self.pending", "pass"),
        Change("supervisor/heartbeats.py", "if now - self._received < PAGE_AFTER or not self._read():", "if True:"),
    ),
    "silent-clients": (
        Change(
            "supervisor/control.py",
            "client.socket.setblocking(False)",
            "client.socket.settimeout(PATIENCE), client.socket.recv(LINE_MAX)",
        ),
    ),
    "garbage-on-sockets": (
        Change(
            "supervisor/control.py",
            "except Exception as error:  # noqa: BLE001 - the next client must be served",
            "except KeyError as error:",
        ),
        Change("supervisor/control.py", "except UNREADABLE as error:", "except KeyError as error:"),
    ),
    "false-beats": (
        Change(
            "supervisor/heartbeats.py",
            'if record is None or record["token"] != self._token:\n            self._dropped',
            "if record is None:\n            self._dropped",
        ),
    ),
}

# ---- disks ------------------------------------------------------------------------------------------------------

_DISKS: Guards = {
    "disk-full": (_NO_ROOM,),
    "disk-full-at-start": (
        Change(
            "launch/request.py",
            "    except OSError as error:\n        import shutil",
            "    except KeyError as error:\n        import shutil",
        ),
    ),
    "disk-read-only": (Change("supervisor/background.py", "if identity(path) != self._directory:", "if False:"),),
    "disk-read-only-at-start": (
        Change(
            "storage/paths.py",
            '    except OSError as error:\n        raise StallguardError(\n            f"cannot make',
            '    except KeyError as error:\n        raise StallguardError(\n            f"cannot make',
        ),
    ),
    "disk-out-of-inodes": (_NO_ROOM,),
    "file-size-limited": (
        Change(
            "supervisor/output_log.py",
            "            except OSError as error:\n                self._lost",
            "            except KeyError as error:\n                self._lost",
        ),
    ),
    "run-directory-removed": (
        Change("supervisor/background.py", "if identity(path) != self._directory:", "if False:"),
    ),
    "probe-files-removed": (
        Change("probe/sender.py", "        if self._tried and now - self._tried < SECOND:\n", "        if True:\n"),
    ),
    "output-disk-full": (Change("supervisor/output.py", "if error.errno in HUNG_UP:", "if error.errno:"),),
    "settings-damaged": (
        Change(
            "config/watch.py",
            """        except StallguardError as error:
            return [f"the settings did not change: {'; '.join(error.lines())}"]
        except Exception as error:""",
            "        except KeyError as error:",
        ),
    ),
    "files-of-a-job-damaged": (
        Change("storage/run_files.py", "for path in (run.asked, _copy(run)):", "for path in (run.asked,):"),
    ),
}

GUARDS: Guards = _SUPERVISOR | _CONDITIONS | _SOCKETS | _DISKS

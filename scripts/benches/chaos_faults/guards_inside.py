"""The guards against what trainings do to themselves, and against signals and terminals."""

from __future__ import annotations

from .fault import Change, Guards

_SWEEP = "if self._asked or end.code != 0:"
_CHILD = "supervisor/child.py"
_ASKS = 'ASKS = {signal.SIGINT: "interrupt", signal.SIGTERM: "stop", signal.SIGHUP: "stop", signal.SIGQUIT: "stop"}'
_NO_RUNG = "    rung, closed = _rung(remedy, others, past, last, limits, ordered=ordered)\n"
_TRIES_ON = Change("core/policy.py", _NO_RUNG, "    rung, closed = SAME, list[str]()\n")
# An end that the script chose itself is taken for one that a restart helps against.
_NO_OWN_END = (
    Change("core/policy.py", "    if remedy.instead == FINISH:\n", "    if False:\n"),
    Change("core/policy.py", "    if remedy.instead:\n        return _give_up(remedy.why, last)\n", ""),
    _TRIES_ON,
)
_STILL_OURS = Change(
    "probe/stack_dumps.py",
    "return _is_open() and number not in _theirs and _signal.getsignal(number) == before",
    "return True",
)
_SEES_HANDLERS = Change(
    "probe/stack_dumps.py",
    """        if before != _signal.SIG_DFL and not (again and before == _signal.SIG_IGN):
            return False
        if not again and is_caught(number):
            return False
""",
    "",
)
# While Python runs, the probe's thread answers before a signal would be sent.
_ASKS_PYTHON = Change("collectors/training_process.py", "if not (_asks(context) and", "if not (False and")
_SENT_AFTER_RESET = (
    _ASKS_PYTHON,
    _STILL_OURS,
    # The default action of SIGURG is to ignore it; that of others is to end the process.
    Change("launch/environment.py", "int(signal.SIGURG)", "int(signal.SIGUSR1)"),
    Change("collectors/__init__.py", "int(signal.SIGURG)", "int(signal.SIGUSR1)"),
    Change("probe/sender.py", "if self._mail.armed and is_caught(self._signal) is False:", "if False:"),
    Change("collectors/training_process.py", "if system.catches(context.pid, context.signal) is False:", "if False:"),
)
_APPEARS = Change(
    "probe/bootstrap.py",
    '        except Exception as error:\n            self.context.surprise("appearing", error)',
    '        except KeyError as error:\n            self.context.surprise("appearing", error)',
)
_IS_OPEN = Change("probe/sender.py", "return fstat(link.fileno()).st_ino == self._inode", "return True")
_NOT_HELD = Change("supervisor/background.py", "if held >= HELD and now - self._posted >= HELD_EVERY:", "if False:")

# ---- programs ---------------------------------------------------------------------------------------------------

_PROGRAMS: Guards = {
    "descriptors-closed": (_IS_OPEN,),
    "directory-deleted-and-crashed": (Change(_CHILD, "if cwd is not None and error.filename == cwd:", "if False:"),),
    "becomes-another-program": _NO_OWN_END,
    "environment-emptied": _NO_OWN_END,
    "becomes-itself": (
        Change("supervisor/heartbeats.py", "if track is not None and not track.is_of(record):", "if False:"),
    ),
    "output-of-1-gb": (Change("supervisor/output.py", "if len(self._waiting) > TAP_CHUNKS:", "if False:"),),
    "line-of-1-gb": (Change("supervisor/output.py", "if len(self._waiting) > TAP_CHUNKS:", "if False:"),),
    "line-of-50-mb": (Change("supervisor/output_log.py", "if self._size >= self.part_max:", "if False:"),),
    "output-not-text": (
        Change("report/sanitize.py", "    if text.isascii() and text.isprintable():\n", "    if True:\n"),
    ),
    "functions-replaced": (
        Change(
            "probe/beats.py",
            "    monotonic_ns = time.monotonic_ns  # CLOCK",
            "    monotonic_ns = lambda: time.monotonic_ns()  # CLOCK",
        ),
    ),
    "tracing": (
        Change(
            "probe/native_threads.py",
            "start_new_thread(_begin, (runs, run, args))",
            "__import__('threading').Thread(target=_begin, args=(runs, run, args), daemon=True).start()",
        ),
    ),
    "developer-mode": (
        Change(
            "probe/stack_dumps.py",
            'with open("/proc/self/status", "rb") as status:\n            line = next((line for line in status',
            'if True:\n            line = next((line for line in open("/proc/self/status", "rb")',
        ),
    ),
    "isolated": (Change("launch/command.py", "return ProbeReach(False, _SHUT[shut])", "pass"),),
    "training-out-of-descriptors": (_APPEARS,),
    "own-sitecustomize": (
        Change(
            "probe/inject/sitecustomize.py",
            "    import sitecustomize  # noqa: F401  # type: ignore[import-not-found]",
            "    pass",
        ),
    ),
    "training-out-of-memory": (_TRIES_ON,),
}

# ---- signals ----------------------------------------------------------------------------------------------------

_SIGNALS: Guards = {
    "sigterm-ignored": (Change("core/shutdown.py", "deadline=run.now + limits.stop.grace)", "deadline=math.inf)"),),
    "sigterm-handled": (
        Change(
            "core/shutdown.py",
            'Signal(attempt=run.current.number, name="TERM")',
            'Signal(attempt=run.current.number, name="KILL")',
        ),
    ),
    "signals-blocked": (Change("core/shutdown.py", "deadline=run.now + limits.stop.grace)", "deadline=math.inf)"),),
    "signals-reset": _SENT_AFTER_RESET,
    "signals-reset-just-now": _SENT_AFTER_RESET,
    "own-urg-handler": (_ASKS_PYTHON, _STILL_OURS),
    "own-urg-handler-from-the-start": (_ASKS_PYTHON, _SEES_HANDLERS),
    "own-faulthandler": (Change("probe/stack_dumps.py", "            _theirs.add(int(number))", "            pass"),),
    "crashes-always": (_TRIES_ON,),
    "killed-always": (_TRIES_ON,),
    "group-signalled": (Change(_CHILD, "start_new_session=True", "start_new_session=False"),),
    "fails-always": _NO_OWN_END,
    "exits-abruptly": (Change("supervisor/heartbeats.py", "self.pending = self._read() or self.pending", "pass"),),
    "training-killed": (Change("supervisor/launcher.py", "resume=action.resume, device", "resume=False, device"),),
    "training-stopped": (Change("core/detection/verdict.py", 'if seen.state == "stopped":', "if False:"),),
    "both-stopped": (
        Change("core/detection/verdict.py", "max(limits.longest_tick, steady)", "max(1e9, steady)"),
        Change("core/detection/verdict.py", "passed - steady > limits.starved", "passed - steady > 1e9"),
        Change("supervisor/loop.py", "if gap is not None:", "if False:"),
    ),
    "asked-twice": (
        Change("core/user_commands.py", '    if event.verb == "interrupt":\n        return kill(run)\n', ""),
    ),
}

# ---- several processes ------------------------------------------------------------------------------------------

_PROCESSES: Guards = {
    "forks-and-ends": (Change(_CHILD, _SWEEP, "if True:"),),
    "daemonises": (
        Change(
            "probe/sender.py",
            "        except OSError:\n            link.close()\n",
            "        except KeyError:\n            link.close()\n",
        ),
        _APPEARS,
    ),
    "forks-and-fails": (Change(_CHILD, _SWEEP, "if False:"),),
    "output-held-open": (Change("supervisor/output.py", "in waiter.wait(LAST_PAUSE)[0]:", "in waiter.wait(None)[0]:"),),
    "forks-while-training": (Change("probe/bootstrap.py", ", after_in_child=self.forked)", ")"),),
    "hundred-workers": (Change("probe/bootstrap.py", ", after_in_child=self.forked)", ")"),),
    "number-recycled": (
        Change(
            "launch/earlier_run.py", "attempt is not None and run_files.lives(attempt.process)", "attempt is not None"
        ),
    ),
    "two-guards": (
        Change(
            "storage/paths.py",
            "        except FileExistsError:\n            continue\n        return RunDir(path)",
            "        except FileExistsError:\n            pass\n        return RunDir(path)",
        ),
    ),
    "two-guards-of-one-run": (
        Change(
            "launch/earlier_run.py", 'if run_files.state(run) == "running":\n        raise', "if False:\n        raise"
        ),
    ),
    "run-in-a-run": (Change("launch/environment.py", ' or "__" in name or name == HOME', ""),),
    "run-in-a-run-stopped": (Change("supervisor/signals.py", _ASKS, _ASKS.replace(' signal.SIGTERM: "stop",', "")),),
}

# ---- terminals and clocks ---------------------------------------------------------------------------------------

_TERMINALS: Guards = {
    "terminal-hang-up": (Change("supervisor/signals.py", _ASKS, _ASKS.replace(' signal.SIGHUP: "stop",', "")),),
    "terminal-hang-up-nohup": (
        Change("supervisor/signals.py", " if signal.getsignal(number) != signal.SIG_IGN}", "}"),
    ),
    "logout": (Change("supervisor/signals.py", _ASKS, _ASKS.replace(' signal.SIGHUP: "stop",', "")),),
    "ctrl-z": (Change("supervisor/signals.py", '        pass_on("STOP")', "        pass"),),
    "ctrl-s": (_NOT_HELD,),
    "ctrl-c": (Change("supervisor/signals.py", _ASKS, _ASKS.replace('signal.SIGINT: "interrupt", ', "")),),
    "terminal-is-one": (Change("supervisor/terminal_lines.py", '{"terminal": "terminal", ', '{"terminal": "pipe", '),),
    "reader-gone": (
        Change("supervisor/output.py", "                if gone:\n                    raise BrokenPipeError\n", ""),
        Change(
            "supervisor/output.py",
            "        except BrokenPipeError:\n            raise\n        except OSError",
            "        except OSError",
        ),
    ),
    "reader-slow": (_NOT_HELD,),
    "clock-steps": (Change("host/clock.py", "return system.monotonic()", "return __import__('time').time()"),),
}

# ---- Keras ------------------------------------------------------------------------------------------------------

_KERAS: Guards = {
    "keras-killed": (Change("supervisor/launcher.py", "resume=action.resume, device", "resume=False, device"),),
    "keras-checkpoint-damaged": (
        Change("probe/checkpoint/generations.py", "if len(blob) != length or _check(blob) != check:", "if False:"),
    ),
    "keras-handlers-and-stops": (_ASKS_PYTHON, _SEES_HANDLERS, _STILL_OURS),
}

GUARDS: Guards = _PROGRAMS | _SIGNALS | _PROCESSES | _TERMINALS | _KERAS

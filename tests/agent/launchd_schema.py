"""The keys of launchd.plist(5) that a user agent may have, with their types: what a property list is held against."""

from __future__ import annotations

from typing import Any

STRINGS = [str]
NUMBERS = {"Core": int, "CPU": int, "Data": int, "FileSize": int, "MemoryLock": int, "NumberOfFiles": int,
           "NumberOfProcesses": int, "ResidentSetSize": int, "Stack": int}  # fmt: skip
CALENDAR = {"Minute": int, "Hour": int, "Day": int, "Weekday": int, "Month": int}
KEYS: dict[str, Any] = {
    "Label": str,
    "Disabled": bool,
    "Program": str,
    "ProgramArguments": STRINGS,
    "EnableGlobbing": bool,
    "EnableTransactions": bool,
    "KeepAlive": (bool, {"SuccessfulExit": bool, "Crashed": bool, "NetworkState": bool}),
    "RunAtLoad": bool,
    "WorkingDirectory": str,
    "EnvironmentVariables": {str: str},
    "Umask": int,
    "TimeOut": int,
    "ExitTimeOut": int,
    "ThrottleInterval": int,
    "StartInterval": int,
    "StartOnMount": bool,
    "StartCalendarInterval": [CALENDAR],
    "WatchPaths": STRINGS,
    "QueueDirectories": STRINGS,
    "StandardInPath": str,
    "StandardOutPath": str,
    "StandardErrorPath": str,
    "Debug": bool,
    "WaitForDebugger": bool,
    "SoftResourceLimits": NUMBERS,
    "HardResourceLimits": NUMBERS,
    "Nice": int,
    "ProcessType": {"Background", "Standard", "Adaptive", "Interactive"},
    "AbandonProcessGroup": bool,
    "LowPriorityIO": bool,
    "LowPriorityBackgroundIO": bool,
    "LaunchOnlyOnce": bool,
    "LimitLoadToSessionType": {"Aqua", "Background", "LoginWindow", "StandardIO", "System"},
    "SessionCreate": bool,
}
REQUIRED = ("Label", "ProgramArguments")


def mistakes(plist: dict[str, Any]) -> list[str]:
    """Return what is wrong with a property list; nothing where launchd's manual allows it."""
    absent = [f"{key} is absent" for key in REQUIRED if key not in plist]
    unknown = [f"{key} is no key of launchd" for key in plist if key not in KEYS]
    return (
        absent
        + unknown
        + [f"{key} is {plist[key]!r}" for key in plist if key in KEYS and not fits(plist[key], KEYS[key])]
    )


def fits(value: Any, form: Any) -> bool:
    """Tell whether `value` has the form; a number is not a truth value here."""
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, set):
        return value in form
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, dict) and str in form:
        return isinstance(value, dict) and all(fits(item, form[str]) for item in value.values())
    if isinstance(form, dict):
        return isinstance(value, dict) and all(key in form and fits(value[key], form[key]) for key in value)
    return type(value) is form

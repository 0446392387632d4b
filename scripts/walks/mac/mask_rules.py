"""Where the tools of a Mac print names: columns, keys, parts of lines; and what has a form of its own.

Each rule was made from recorded outputs (tests/recordings/macos, and public records of the same tools: pmset -g
assertions with kernel assertions and caffeinate's "on behalf of '/bin/sh' (pid 1)", system_profiler's
spdisplays_ndrvs, xnu's "memorystatus: killing_... pid %d [%s]").  `of(kind, name)` returns the mask of a name.  Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from mac.mask_paths import APPLES, Of, command, path, paths, program
from stallguard.collectors.redact import HARMLESS, mark

# ---- by the name of a value: JSON, property lists, `"key" = "value"` of ioreg
SERIAL_KEY = re.compile(
    r".*(?:serial|udid|edid|mac[ _-]?address|asset[ _-]?tag|display-(?:vendor|product)-id|display-(?:week|year)"
    r"|displayid|displaypath|displayregid|hardware_?uuid|platform_?uuid).*",
    re.IGNORECASE,
)
KINDS = {
    "program": re.compile(
        r"(?:proc(?:ess)?_?name|parent_?proc|responsible_?proc|largest_?process|coalition_?name|bundle_?id"
        r"|cf_?bundle_?(?:name|executable|display_?name)|app_?name|busiest|prevented_by)", re.IGNORECASE
    ),
    "user": re.compile(r"(?:user_?name|user|login|logname|full_?name|real_?name|owner)", re.IGNORECASE),
    "machine": re.compile(r"(?:host_?name|host|computer_?name|local_?host_?name|node_?name)", re.IGNORECASE),
    "network": re.compile(r"(?:b?ssid(?:_str)?|network_?name)", re.IGNORECASE),
}  # fmt: skip
AMONG = frozenset({"processes", "heavy"})  # of a jetsam report; of stallguard's doctor
CREATOR = re.compile(r"(pid \d+, )(.+)", re.DOTALL)
BUILT_IN = "Color LCD"
OF_A_DISPLAY = re.compile(  # what is said of a display without saying which it is
    r".*(?:pixel|resolution|connection_type|depth|display_type|main|mirror|online|brightness|rotation|retina|virtual)"
    r".*", re.IGNORECASE
)  # fmt: skip


def by_key(key: str, value: Any, of: Of, above: tuple[str, ...] = ()) -> Any:
    """Return what stands in place of a value under this key; None if the key says nothing about it.

    `above`: the keys around it.  A number that identifies becomes 0.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    text = str(value)
    if "spdisplays_ndrvs" in above:
        if key == "_name":
            return value if value == BUILT_IN else of("display", text)
        return None if OF_A_DISPLAY.fullmatch(key) else 0 if isinstance(value, int) else mark("display")
    kind = kind_of(key)
    if kind == "serial":
        return (0 if isinstance(value, int) else of("serial", text)) if text.strip("0x<>") else None
    if isinstance(value, int):
        return None
    if key == "IOUserClientCreator" and (made := CREATOR.fullmatch(text)):
        return made[1] + program(made[2], of)
    if key == "name" and not AMONG.isdisjoint(above):
        return program(text, of)
    if key == "who" and "heavy" in above:
        return _scripts(text, of)
    return None if not kind else program(text, of) if kind == "program" else of(kind, text)


@cache
def kind_of(key: str) -> str:
    """Return of which kind of name the value under this key is; "" if it is none."""
    return "serial" if SERIAL_KEY.fullmatch(key) else next((kind for kind in KINDS if KINDS[kind].fullmatch(key)), "")


# ---- by the line
SCRIPT = re.compile(r"((?<=\()[^();,\n]*|(?<=; )[^();,\n]*|^[^();,\n]*)(, pid \d+)")
ONE_OF = re.compile(r"([^,(]+?)((?: \([^)]*\))?(?:, |$))")
NAMES_ITSELF = frozenset({"caffeinate", "powerd"})  # what their assertions are called says nothing of others
SAID_OF_CAFFEINATE = re.compile(
    r"(?i)\s*|\d+\.? ?|caffeinate asserting(?: for \d+ secs| forever| on behalf of Process ID \d+)?\s*"
    r"|THE CAFFEINATE TOOL IS PREVENTING SLEEP\.\s*"
)
BEHALF = re.compile(r"(caffeinate asserting on behalf of ')(.*)(' \(pid \d+\)\s*)")


def _scripts(text: str, of: Of) -> str:
    return SCRIPT.sub(lambda one: of("program", one[1]) + one[2] if one[1] else one[0], text)


def _named(one: re.Match[str], of: Of) -> str:
    return one[1] + program(one[2], of) + one[3]


def _property(one: re.Match[str], of: Of) -> str:
    named = by_key(one[2], one[3], of)
    return one[0] if named is None else f'{one[1]}"{named}"'


def _assertion(one: re.Match[str], of: Of) -> str:
    named = one[4] if one[2] in NAMES_ITSELF else f'"{mark("name")}"'
    return one[1] + program(one[2], of) + one[3] + named


def _detail(one: re.Match[str], of: Of) -> str:
    if behalf := BEHALF.fullmatch(one[2]):
        return one[1] + behalf[1] + program(behalf[2], of) + behalf[3]
    return one[0] if SAID_OF_CAFFEINATE.fullmatch(one[2]) else one[1] + mark("name")


def _held_by_kernel(one: re.Match[str], of: Of) -> str:
    return one[1] + (one[2] if APPLES.fullmatch(one[2]) else mark("name")) + one[3] + of("device", one[4])


def _doctors(one: re.Match[str], of: Of) -> str:
    return program(one[1], of) + _scripts(one[2], of) + one[3]


def _also(one: re.Match[str], of: Of) -> str:
    return one[1] + ONE_OF.sub(lambda each: program(each[1], of) + _scripts(each[2], of), one[2])


def _prevented(one: re.Match[str], of: Of) -> str:
    return one[1] + ", ".join(program(name, of) for name in one[2].split(", ")) + one[3]


# ---- by the form
def _serial(one: re.Match[str], of: Of) -> str:
    value = one[2]
    if not value.strip('"<>0x '):
        return one[0]
    if value[0] == "<":
        return one[1] + "<00>"
    return one[1] + (f'"{of("serial", value[1:-1])}"' if value[0] == '"' else of("serial", value))


def _uuid(one: re.Match[str], of: Of) -> str:
    return f"00000000-0000-0000-0000-{_number(of('uuid', one[0])):012}"


def _ethernet(one: re.Match[str], of: Of) -> str:
    number = _number(of("ethernet", one[0]))
    return f"02:00:00:00:{number // 256 % 256:02x}:{number % 256:02x}"


def _number(mask: str) -> int:
    return int(mask.rpartition("-")[2])


def _address(one: re.Match[str], of: Of) -> str:
    try:
        address = ipaddress.ip_address(one[0].partition("%")[0])
    except ValueError:
        return one[0]
    return one[0] if address.is_loopback or address.is_unspecified else of("address", one[0])


def _variable(one: re.Match[str], _of: Of) -> str:
    return one[0] if HARMLESS.fullmatch(one[2]) or not one[2].isupper() else one[1] + one[2] + one[3] + mark("variable")


def _label(one: re.Match[str], of: Of) -> str:
    name = one[0].removesuffix(".plist")
    return one[0] if APPLES.fullmatch(name) else of("label", name) + one[0][len(name) :]


def _value(kind: str) -> Callable[[re.Match[str], Of], str]:
    return lambda one, of: one[1] + of(kind, one[2][1:-1] if one[2][0] in "\"'" and one[2][0] == one[2][-1] else one[2])


VALUE = r"[ \t]*(?:=>|[=:])[ \t]*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;]+)"
RULES: tuple[tuple[str, Callable[[re.Match[str], Of], str]], ...] = (
    # ioreg
    (r"^([\s|]*\"([^\"\n]+)\" = )\"(.*)\"[ \t]*$", _property),
    # pmset -g assertions: a program's name can have brackets, that of an assertion quotes
    (r"^([ \t]*pid \d+\()(.+)(\): \[0x[0-9a-f]+\][^\n]*? named: )(\".*\")", _assertion),
    (r"^([ \t]*pid \d+\()(.+)(\): \[0x)", _named),
    (r"^([ \t]+(?:(?:Details|Localized|Resources|Created for)[^:\n]*: ?|Localized=))(.*)$", _detail),
    (r"^([ \t]*id=\d+ .*?\bdescription=)(.*?)( owner=)(.*)$", _held_by_kernel),
    # pmset -g
    (r"(prevented by )([^()\n]{0,2000})(\))", _prevented),
    # sample, vmmap, footprint
    ((r"^((?:Process|Parent Process|Responsible(?: Process)?|Identifier|Coalition):[ \t]+)(.+?)"
     r"((?:[ \t]+\[[\d?]+\])?[ \t]*)$"), _named),
    (r"^(Analysis of sampling )(.+)( \(pid \d+\))", _named),
    # log show, and what xnu writes there
    ((r"^((?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+(?:[+-]\d{4})?[ \t]+(?:[A-Z][a-z]?[ \t]+)?)(\S(?:.{0,80}?\S)?)"
     r"(\[\d+(?::[0-9a-f]+)?\])"), _named),
    (r"(\bpid \d+ \[)(.{1,80}?)(\](?=[ :,.]|$))", _named),
    (r"(\bkilling_\w+ \[)(.{1,80}?)(\] \()", _named),
    (r"(\bmemorystatus: )(\S.{0,80}?)( exceeded mem limit)", _named),
    (r"(\bprocess )(\S.{0,80}?)( ?\[\d+\])", _named),
    # stallguard's doctor
    (r"^(\S[^(\n]*?)((?: \(.*\))?)(: [\d.]+ cores busy, )", _doctors),
    (r"^(also running: )(.*)$", _also),
    # of any tool
    (
        (
            r"((?:[Ss]erial(?:[ _-]?(?:[Nn]umber|[Nn]o))?\d?(?: \(system\))?|IOPlatformUUID|Provisioning UDID|edid"
            r"|EDID)\"?[ \t]*[=:][ \t]*)(\"[^\"\n]*\"|<[^>\n]*>|[^\s,;}]+)"
        ),
        _serial,
    ),
    (r"\b(?!0{8}-0{4}-0{4}-0{4}-)[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b", _uuid),
    (r"(?<![0-9A-Fa-f:-])(?!02:00:00:00:)[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])",
     _ethernet),
    ((r"(?<![\w.:-])(?:\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\w)"
     r"|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*[0-9A-Fa-f](?:%\w+)?(?![\w:]))"), _address),
    (rf"(?<![\w.])((?:USER|LOGNAME|USERNAME|SUDO_USER){VALUE}", _value("user")),
    (rf"(?<![\w.])((?:HOST|HOSTNAME|COMPUTERNAME){VALUE}", _value("machine")),
    (rf"(?<![\w.])((?:B?SSID){VALUE}", _value("network")),
    (r"^(\t+)([A-Za-z_]\w*)( => )(?!\d+$)(.+)$", _variable),  # launchctl print
    (r"(?<![\w.@-])(?:com|org|net|io|app|dev|co|us|de|fr|uk|ch|at|me|ai)(?:\.[\w-]+){2,}", _label),
)  # fmt: skip
COMPILED = tuple((re.compile(pattern, re.MULTILINE), do) for pattern, do in RULES)


def text(text: str, of: Of) -> str:
    """Return a tool's text with masks where names stand."""
    for pattern, do in COMPILED:
        text = pattern.sub(lambda one, do=do: do(one, of), text)  # type: ignore[misc] # a default has no type in a lambda
    return paths(_tables(text, of), of)


# ---- tables: ps, top, lsof
def _tables(text: str, of: Of) -> str:
    lines, heads = text.split("\n"), ""
    for number, line in enumerate(lines):
        words = set(line.split())
        if "PID" in words and not words.isdisjoint({"COMMAND", "COMM"}):
            heads = line
        elif not words:
            heads = ""
        elif heads:
            lines[number] = _row(heads, line, of)
    return "\n".join(lines)


def _row(heads: str, line: str, of: Of) -> str:
    names = heads.split()
    if names[0] == "COMMAND":  # lsof: no column has spaces but the last
        found = re.fullmatch(r"(\S+)(\s+\d+\s+)(\S+)(.*?)(?:(\s)([/~].*))?", line)
        if not found:
            return line
        file = (found[5] or "") + path(found[6] or "", of)
        return program(found[1], of) + found[2] + _user(found[3], of) + found[4] + file
    if names[-1] in ("COMMAND", "COMM"):  # ps
        cells = re.fullmatch(rf"(\s*)((?:\S+\s+){{{len(names) - 1}}})(.*)", line)
        if not cells or (names[0] == "USER" and cells[1]):  # `ps -M`: a further thread has no user and no command
            return line
        front = cells[2]
        if names[0] == "USER":
            user = front.split()[0]
            front = _user(user, of) + front[len(user) :]
        return cells[1] + front + command(cells[3], of)
    return _row_of_top(heads, line, of)


def _row_of_top(heads: str, line: str, of: Of) -> str:
    names = heads.split()
    at = heads.index("COMMAND")
    end = heads.index(names[names.index("COMMAND") + 1], at)
    shown = line[at:end]
    if shown.strip():
        line = line[:at] + program(shown.rstrip(), of).ljust(len(shown)) + line[end:]
    place = heads.find("USER")
    if place >= 0 and (user := re.match(r"\S+ *", line[place:])):
        line = line[:place] + _user(user[0].strip(), of).ljust(len(user[0])) + line[place + len(user[0]) :]
    return line


def _user(name: str, of: Of) -> str:
    """Return the mask of a user; root and the users of the system (_windowserver) keep their names."""
    return name if name == "root" or name.startswith("_") else of("user", name)

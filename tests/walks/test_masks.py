"""No name of a person, a machine, a network, a display or another program is left in what a walk hands back."""

from __future__ import annotations

import functools
import json
import plistlib
import random
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as Xml
from xml.sax.saxutils import escape, quoteattr

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stallguard.agent import launchctl_answers
from stallguard.collectors.stacks import parse_sample
from stallguard.host.darwin import parsers

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/recordings/macos"


class Names(NamedTuple):
    """What identifies someone or something on one Mac."""

    user: str = "quillon"
    full: str = "Quillon Vexley"
    host: str = "quillons-zephyr"
    network: str = "Vexleynet"
    display: str = "Brambleworth's iPad"
    volume: str = "Thornfield Disk"
    folder: str = "Wexcombe"
    serial: str = "C02XQ1YZJG5H"
    first: str = "Fizzwick"
    second: str = "Glimmerby Helper"


PLAIN = Names()


@functools.cache
def needed() -> frozenset[str]:
    """Return the words that are no names."""
    from mac import sending

    return sending.words(ROOT)


def masks(names: Names = PLAIN):
    from mac.masks import Masks

    from stallguard.collectors.redact import Redactor

    known = [("user", names.user), ("user", names.full), ("machine", names.host), ("network", names.network),
             ("serial", names.serial)]  # fmt: skip
    return Masks(Redactor({}, home=f"/Users/{names.user}"), known, needed())


def recorded(file: str, **by: str) -> str:
    """Return a recording in which words have other words in their place."""
    text = (RECORDINGS / file).read_text()
    for word, other in by.items():
        assert word in text, (file, word)
        text = text.replace(word, other)
    return text


def outputs(names: Names) -> dict[str, str]:
    """Return what each tool prints on the Mac of these names, in the shapes that were recorded."""
    user, first, second, serial = names.user, names.first, names.second, names.serial
    plain = [re.sub(r"[][(),]", "", one) for one in (first, second)]  # pmset -g and log have no escape for these
    home = f"/Users/{user}"
    displays = json.loads(recorded("system_profiler_spdisplays_m4.json"))
    displays["SPDisplaysDataType"][0]["spdisplays_ndrvs"] = [
        {"_name": names.display, "_spdisplays_display-serial-number": serial, "_spdisplays_pixels": "2360 x 1640",
         "_spdisplays_display-serial-number2": serial, "spdisplays_connection_type": "spdisplays_airplay",
         "_spdisplays_edid": f"0x{serial}", "spdisplays_display-serial-number": serial},
        {"_name": "Color LCD", "spdisplays_connection_type": "spdisplays_internal"},
    ]  # fmt: skip
    clients = [{"IOUserClientCreator": f"pid 44, {first}", "AppUsage": [{"accumulatedGPUTime": 7}]},
               {"IOPlatformSerialNumber": serial, "serial-number": serial.encode()}]  # fmt: skip
    jetsam = {"largestProcess": second, "pageSize": 16384, "processes": [
        {"name": first, "pid": 7, "rpages": 12}, {"name": second, "pid": 8, "reason": "vm-pageshortage"}]}  # fmt: skip
    heavy = {"name": second, "count": 2, "cores": 1.5, "who": [f"{plain[0]}.py, pid 4"]}
    doctor = {"facts": {"machine": {"heavy": [heavy]}},
              "preferences": {"sleep": {"prevented_by": [first, second]}}, "host": names.host, "user": user,
              "script": f"{home}/{names.folder}/train.py"}  # fmt: skip
    beat = {"event": "machine.read", "machine": {"busiest": [first, second], "idle": 0.25}, "beats": 12}
    junit = (
        f'<?xml version="1.0"?><a><testsuite hostname={quoteattr(names.host)} tests="1"><testcase>'
        f"<failure>{escape(f'{home}/{names.folder}/x.py:3: error')}</failure></testcase></testsuite></a>"
    )
    top = "PID    COMMAND          %CPU TIME     USER            #MREGS"
    return {
        "tools/ioreg.txt": recorded("ioreg_agxdeviceuserclient_list.txt", runningboardd=first, WindowServer=second),
        "tools/ioreg.plist": plistlib.dumps(clients).decode(),
        "tools/root.txt": f'      "IOPlatformSerialNumber" = "{serial}"\n      "USB Serial Number" = "{serial}"\n',
        "tools/displays.json": json.dumps(displays, indent=2),
        "tools/displays.ascii": json.dumps(displays, indent=2, ensure_ascii=True),
        "tools/gpu.ips": recorded("gpuEvent_firmware_lockup_macos27.ips", DrewsChessMachin=json.dumps(first)[1:-1]),
        "tools/jetsam.ips": '{"bug_type":"298"}\n' + json.dumps(jetsam, indent=2),
        "tools/pmset_g.txt": recorded("pmset_g_sleep_prevented.txt", runningboardd=plain[0]),
        "tools/assertions.txt": recorded("pmset_g_assertions_caffeinate_w.txt")
        + f'   pid 7({first}): [0x0003c96e0005958d] 00:48:05 NoDisplaySleepAssertion named: "{second} plays"\n'
        + f"\tDetails: {second} of {names.full}\n\tLocalized={second} is preventing sleep.\n"
        + f"   pid 8({second}): [0x0000000000000007] 00:00:05 UserIsActive\n"
        + f"   id=537  level=255 0x4=USB description=com.{plain[0]} owner={names.display}\n",
        "tools/log.txt": f"2026-11-27 10:00:00.123 Df {plain[1]}[431:5b] (IOGPU) GPURestart\n"
        f"10:00:00.123 kernel[0:1] memorystatus: killing_top_process pid 7 [{plain[0]}] (vm-pageshortage 1) 9KB\n",
        "tools/sample.txt": recorded("sample_header_python313_macos27.txt").replace(
            "/Users/USER/*/", f"{home}/{names.folder}/").replace("python3.13 [95710]", f"{plain[0]} [95710]"),
        "tools/ps.txt": f"USER     PID   TT   %CPU STAT PRI     STIME     UTIME COMMAND\n"
        f"{user}     12 s000    0.0 S    31T   0:00.01   0:00.02 /opt/homebrew/bin/python3 -c print(flush=True)\n"
        f"         12         0.0 S    31T   0:00.00   0:00.00\n",
        "tools/ps_all.txt": f"  PID STAT  %CPU COMM\n   12 S      3.5 {plain[0]}\n   13 R+    12.0 python3.12\n",
        "tools/python.txt": recorded("ps_hung_python_splus_0cpu.txt").replace("finetune_transformer", plain[0]),
        "tools/top.txt": f"Networks: packets: 85/101G in\n\n{top}\n99571  {plain[0]:16} 0.0  00:01.42 {user:15} N/A\n",
        "tools/lsof.txt": "COMMAND PID USER FD TYPE DEVICE SIZE/OFF NODE NAME\n"
        f"python3 12 {user} cwd DIR 1,18 640 2 {home}/{names.folder} and more\n"
        f"python3 12 {user} 3u IPv4 0x1 0t0 TCP 10.1.2.3:5000->10.1.2.4:443 (ESTABLISHED)\n",
        "tools/launchctl.txt": recorded("launchctl_print_calendar_not_running_exit127.txt").replace(
            "/Users/USER", home).replace("Motherboard_Systems_HQ", names.folder).replace(
            "PATH => /usr/bin", f"LOGNAME => {user}\n\t\tPATH => /Volumes/{names.volume}/bin:/usr/bin"),
        "tools/env.txt": f'USER={user}\nHOSTNAME="{names.host}"\nSSID: \'{names.network.replace(chr(39), "")}\'\n',
        "stallguard/doctor.txt": "looks at this machine\n" + json.dumps(doctor),
        "stallguard/said.txt": f"{plain[0]} (2 processes): 1.5 cores busy, 2 GB of memory\nalso running: {plain[1]}\n",
        "journals/x/journal.jsonl": (json.dumps(beat) + "\n") * 2,
        "junit-tests.xml": junit,
    }  # fmt: skip


LETTERS = [chr(code) for code in range(0x3000) if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lo", "Nd")]
SIMPLE, SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789", " '\u2019\"&<>-._"


def any_name(chance: random.Random) -> str:
    """Return a name as people give one: letters of many scripts, spaces and signs, of 3 to 15 characters."""
    while True:
        letters = (chance.choice(chance.choice((LETTERS, SIMPLE, SIMPLE.upper(), SIGNS))) for _ in range(15))
        name = " ".join("".join(letters)[: chance.randint(3, 15)].split())
        if len(name) > 2 and re.search(r"[^\W\d_]", name) and not re.search(r"(?:^|\s)-", name):
            return name


def any_mac(seed: int) -> Names:
    """Return the names of one Mac.

    They are drawn by a seed: in older releases of Hypothesis, strategies that meet all of `is_ordinary` take minutes.
    A line with a folder or a host whose name has quotes or brackets has no end.
    """
    chance = random.Random(seed)
    while True:
        user = chance.choice(("a", "python", "gpu", "user", "batch", "me", chance.choice(SIMPLE[:26]) + "".join(
            chance.choice(SIMPLE + "._-") for _ in range(chance.randint(0, 11)))))  # fmt: skip
        full, host, network, display, volume, folder, first, second = (any_name(chance) for _ in range(8))
        network, volume, folder = (re.sub("[\"'<>&]", "x", one) for one in (network, volume, folder))
        serial = "".join(chance.choice(SIMPLE[:26].upper() + SIMPLE[26:]) for _ in range(chance.randint(8, 12)))
        names = Names(user, full, host.replace('"', "x"), network, display, volume, folder, serial, first, second)
        if user != "root" and is_ordinary(names):
            return names


SEEDS = st.integers(0, 2**32)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))


AROUND = " ".join([*outputs(PLAIN), *outputs(PLAIN).values()])


@functools.cache
def clean_plain() -> dict[str, str]:
    return masks().files(outputs(PLAIN))


def is_ordinary(names: Names) -> bool:
    """Return whether no name is a part of another, a word of the outputs around it, or what every Mac has."""
    from mac.mask_paths import APPLES, FOLDER, SYSTEM
    from mac.masks import MASK

    around = words(AROUND)
    seen: set[str] = set()
    for name in names:
        if words(name) & (seen | (around if name != names.user else set())):
            return False
        seen |= words(name)
        if any(known.fullmatch(name) for known in (APPLES, FOLDER, SYSTEM, MASK)) and name != names.user:
            return False
    return True


@example(Names(user="a", first='É\' "qy"', second="Zed Renderer", display="Ünal\u2019s Tab", host="Zoës MacBuch"))
@example(Names(user="python", folder="My Ouvrage", volume="Anjas SSD"))
@example(Names(user="gpu", full="Ouda O'Neill"))
@given(SEEDS.map(any_mac))
def test_what_is_handed_back_is_the_same_for_all_names(names):
    assert masks(names).files(outputs(names)) == clean_plain()


def test_nothing_of_a_name_is_left_and_each_has_the_same_mask_everywhere():
    clean = masks().files(outputs(PLAIN))
    for file, text in clean.items():
        assert not words(" ".join(PLAIN)) & words(text) - {"disk", "ipad", "helper", "s"}, (file, text)
    first = re.search(r"pid 444, (program-\d)", clean["tools/ioreg.txt"])[1]
    assert f'"process_name": "{first}"' in clean["tools/gpu.ips"]
    assert f"[{first}] (vm-pageshortage" in clean["tools/log.txt"]
    assert json.loads(clean["journals/x/journal.jsonl"].splitlines()[0])["machine"]["busiest"][0] == first


def test_each_place_is_found_by_itself_also_if_the_name_could_be_any_word(monkeypatch):
    from mac.masks import Masks

    monkeypatch.setattr(Masks, "_know", lambda *_: None)  # as with a name that is also a word of the outputs
    for file, text in outputs(PLAIN).items():
        left = words(" ".join(PLAIN)) & words(masks().clean(text)) - {"disk", "ipad", "helper", "s"}
        assert not left, (file, left)


def test_json_stays_json_and_lists_stay_property_lists():
    before, clean = outputs(PLAIN), masks().files(outputs(PLAIN))
    found = json.loads(clean["tools/displays.json"])["SPDisplaysDataType"][0]
    assert found["sppci_cores"] == "10"
    assert [one["_name"] for one in found["spdisplays_ndrvs"]] == ["display-1", "Color LCD"]
    assert found["spdisplays_ndrvs"][0]["_spdisplays_pixels"] == "2360 x 1640"
    header, body = clean["tools/jetsam.ips"].split("\n", 1)
    assert (json.loads(header)["bug_type"], json.loads(body)["processes"][0]["rpages"]) == ("298", 12)
    assert plistlib.loads(clean["tools/ioreg.plist"].encode())[0]["AppUsage"] == [{"accumulatedGPUTime": 7}]
    mixed = '<?xml version="1.0"?>\n<plist version="1.0"><string>R &amp; D &lt;x&gt; ~/Wexcombe/y</string></plist>'
    assert plistlib.loads(masks().clean(mixed).encode(), fmt=plistlib.FMT_XML) == "R & D <x> ~/folder-1/folder-2"
    assert Xml.fromstring(clean["junit-tests.xml"])[0].attrib["tests"] == "1"  # noqa: S314 - our own text
    assert parsers.displays(clean["tools/displays.json"]) == parsers.displays(before["tools/displays.json"])


def figures(text: str) -> list[object]:
    """Return all that stallguard reads of a tool's text, but names of programs and paths."""
    sleep, job = parsers.sleep(text), launchctl_answers.parse(text)
    return [
        parsers.accelerators(text), parsers.clients(text), parsers.swap_used(text), parsers.pages(text),
        parsers.thermal(text), parsers.power(text), parsers.has_battery(text), parsers.lid_closed(text),
        [row[:3] for row in parsers.ps(text)], parsers.wakes(text), parsers.displays(text),
        sleep and (sleep.after, len(sleep.prevented_by), sleep.low_power), msgspec.structs.replace(job, path=""),
    ]  # fmt: skip


FILES = sorted(path for path in RECORDINGS.rglob("*") if path.is_file() and path.name != "SOURCES.md")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_figures_of_each_recording_are_read_from_what_is_masked(path):
    text = path.read_text()
    clean = masks().clean(text)
    assert figures(clean) == figures(text)
    if path.name.startswith("sample"):
        assert parse_sample(clean) == parse_sample(text)
    if path.name.startswith("sysctl"):
        assert parsers.sysctl(clean) == parsers.sysctl(text)
    if path.suffix == ".json":
        assert type(json.loads(clean)) is type(json.loads(text))


@given(SEEDS.map(random.Random).map(any_name), st.sampled_from([
    "connected to {}, as before", "{}'s display", "{} is here", "(on {})", "by {}", "x: {}\ny: 3",
]))  # fmt: skip
def test_a_name_that_the_mac_gave_is_found_in_any_text(name, text):
    assume(not words(name) & (needed() | words(AROUND)) and max(map(len, words(name))) > 1)
    for spelled in (name, unicodedata.normalize("NFD", name), json.dumps(name)[1:-1], escape(name)):
        found = masks(PLAIN._replace(host=name)).clean(text.format(spelled))
        assert found == text.format("machine-1").replace("-1's", "-1")


@pytest.mark.parametrize(
    ("user", "text", "masked"),
    [
        ("a", "a batch of a loop", None),
        ("python", "python3.12 in /usr/bin/python", None),
        ("gpu", '"gpu-core-count" = 10', None),
        ("batch", '{"event": "batch", "batch": 3}', None),
        ("quill", "quillon is another word, requill too", None),
        ("quill", "of quill, Quill's and /tmp/quill_1", "of user-1, user-1 and /tmp/user-1_1"),
        ("python", "USER=python /Users/python/bin", "USER=user-1 ~/bin"),
        ("a", "/home/a/x.py of a", "/home/[user]/folder-1.py of a"),
    ],
)
def test_a_name_that_is_a_word_of_the_outputs_is_masked_only_where_a_name_stands(user, text, masked):
    assert masks(Names(user=user, full="")).clean(text) == (text if masked is None else masked)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("en0 at a4:83:e7:01:02:03, 192.168.1.20 and fe80::1c2a:3b4c%en0",
         "en0 at 02:00:00:00:00:01, address-1 and address-2"),
        ("127.0.0.1:5000, ::1, 10:58:33, std::move, 1.2.3", "127.0.0.1:5000, ::1, 10:58:33, std::move, 1.2.3"),
        ("4F2A8C1E-0000-1111-2222-333344445555 twice: 4F2A8C1E-0000-1111-2222-333344445555",
         "00000000-0000-0000-0000-000000000001 twice: 00000000-0000-0000-0000-000000000001"),
        ("      Serial Number (system): FVFXQ1YZJG5H", "      Serial Number (system): serial-2"),
        ("/private/var/folders/zz/zyxvpxvq6csfxvn_n00000sm00006d/T/x", "/private/var/folders/[user]/T/x"),
        ("/Applications/Grumbly Notes.app/Contents/MacOS/Grumbly x",
         "/Applications/program-1.app/Contents/MacOS/program-2 x"),
        ("\tservice = com.grumbly.notes.helper", "\tservice = label-1"),
        ("mail of ann@example.com", "mail of [removed: e-mail]"),
    ],
)  # fmt: skip
def test_what_has_a_form_of_its_own_is_masked_by_it(text, masked):
    assert masks(Names()).clean(text) == masked


def test_secrets_are_removed_from_json_too_and_it_stays_json():
    run = {
        "argv": ["train.py", "--password", "hunter2hunter2", "-v"],
        "api_key": "abcdefgh",
        "url": "http://a:bcdefg@c",
    }
    clean = masks().clean(json.dumps(run))
    assert not {"hunter2hunter2", "abcdefgh", "bcdefg"} & set(re.findall(r"[a-z0-9]+", clean))
    assert json.loads(clean)["argv"] == ["train.py", "--password", "[removed: secret]", "-v"]


PIECES = st.sampled_from(AROUND.splitlines()) | st.text(max_size=40)


@given(st.lists(PIECES, max_size=12).map("\n".join))
def test_no_text_is_too_odd_and_no_mask_is_taken_for_a_name(text):
    ours = masks()
    clean = ours.clean(text)
    before = set(re.findall(r"program-\d+", clean))
    assert set(re.findall(r"program-\d+", ours.clean(clean))) <= before

"""Macs that are directories: fake system tools, Pythons and uv, on which the real scripts/live and scripts/setup run.

`python -m tests.walks.simulated_mac [NUMBER]` prints what the scripts do on that many Macs, and the wrong cells.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from stallguard.core.diagnosis.causes import PIN

ROOT = Path(__file__).parents[2]
REAL = "sh cat cksum sed dirname basename rm mkdir sleep grep tr sort head tail cut ls awk mktemp readlink paste chmod"


class Mac(NamedTuple):
    """One Mac.  `pythons`: minor versions in the order of PATH; each has its own directory with `python3` too."""

    system: str = "15.7"
    processor: str = "native"  # native or rosetta on Apple silicon; intel
    pythons: tuple[int, ...] = (13, 11)
    made_for: str = (
        "this"  # "this": universal; "other": 3.11 and 3.12 are for the other processor; "first": the first one
    )
    place: str = "path"  # of 3.11 and 3.12: path, homebrew, installer, pyenv, uv
    uv: str = "none"  # none, path, home (not on PATH), old (knows neither --group nor --clear)
    pip: bool = True
    tools: bool = True
    network: bool = True
    room: str = "much"  # much, little, unknown
    words: tuple[str, ...] = ()
    session: str = "Aqua"
    folder: str = "src"


DIMENSIONS: dict[str, Sequence[object]] = {
    "system": ("13.7.8", "14.8", "15.7", "26.1"),
    "processor": ("native", "rosetta", "intel"),
    "pythons": (
        (), (9,), (10,), (11,), (12,), (13,), (14,), (13, 11), (11, 13), (14, 12), (12, 14), (13, 12), (14, 13),
        (12, 11), (11, 12), (9, 13, 12), (10, 14), (14, 13, 12, 11, 10, 9), (9, 10, 11, 12, 13, 14),
    ),
    "made_for": ("this", "other", "first"),
    "place": ("path", "homebrew", "installer", "pyenv", "uv"),
    "uv": ("none", "path", "home", "old"),
    "pip": (True, True, False),
    "tools": (True, True, True, False),
    "network": (True, True, False),
    "room": ("much", "much", "much", "unknown", "little"),
    "words": ((), (), (), ("--plugin",), ("--unattended",), ("--only", "gpu")),
    "session": ("Aqua",) * 5 + ("Background",),
    "folder": ("src",) * 5 + ("Documents", "Downloads"),
}  # fmt: skip


class Outcome(NamedTuple):
    """What the scripts do.  `against`: why they refuse, a word each; `python`: of .venv; `by`: what installs."""

    code: int
    against: frozenset[str] = frozenset()
    python: int = 0
    by: str = ""
    pairs: frozenset[str] = frozenset()
    says_intel: bool = False


# The words by which a sentence of a refusal is known.
SENTENCES = {
    "tools": "the command line tools are absent",
    "folder": "which macOS keeps from jobs of launchd",
    "session": "not logged in at the screen",
    "plugin": "needs Apple silicon and macOS 15",
    "python": "and no uv or pip that could fetch one",
    "room": "MB free (df)",
    "no fetch": "none could be fetched",
    "network": "packages cannot be fetched",
}


def expected(mac: Mac) -> Outcome:
    """Return what CONTRIBUTING.md promises for a Mac: written without a look at the scripts."""
    apple, attended = mac.processor != "intel", "--unattended" not in mac.words
    natives = {minor for number, minor in enumerate(mac.pythons) if not _foreign(mac, number)}
    good = natives & {11, 12}
    # A Python for Intel runs on Apple silicon too; one for Apple silicon does not run on Intel.  Apple's own is 3.9.
    runs = set(mac.pythons) if apple else natives
    uv = mac.uv in ("path", "home")
    can_fetch = uv or (mac.pip and bool(runs)) or mac.tools
    against = {
        "tools": not mac.tools,
        "folder": attended and mac.folder != "src",
        "session": attended and mac.session != "Aqua",
        "plugin": "--plugin" in mac.words and (not apple or int(mac.system.split(".")[0]) < 15),
        "python": not good and not can_fetch,
        "room": mac.room == "little",
    }
    why = frozenset(name for name, true in against.items() if true)
    if not why and not mac.network:
        why = frozenset(["network" if good else "no fetch"])
    if why:
        return Outcome(2, why, says_intel=not apple)
    pairs = {"main"} | ({"metal218"} if apple and attended else set())
    if "--plugin" in mac.words:
        pairs.add("metalplugin")
    return Outcome(0, why, min(good, default=11), "uv" if uv else "pip", frozenset(pairs), not apple)


def _foreign(mac: Mac, number: int) -> bool:
    return (mac.made_for == "other" and mac.pythons[number] in (11, 12)) or (mac.made_for == "first" and number == 0)


# The words by which the installation of a pair is known.
PAIRS = {
    "main": ".[tensorflow,metal]",
    "metal218": " ".join(re.findall(r"'([^']+)'", PIN)),  # what `stallguard doctor` recommends
    "metalplugin": "tensorflow-metal-plugin==0.4.1",
}
# Of both fake programs: make an interpreter of this path and minor version, for the other processor or not.
NEW = """
new() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\\nMINOR=%s FOREIGN=%s PIP=%s\\n. %s/python.sh\\n' "$2" "$3" yes "$SIM" > "$1"
    chmod +x "$1"
}
"""
PYTHON = """
other=arm64; [ "$SHELL_KIND" = intel ] || other=x86_64
case $SHELL_KIND in
intel) this=x86_64 ;;
rosetta) this=${SIM_NATIVE:+arm64} this=${this:-x86_64} ;;
*) this=arm64 ;;
esac
if [ "$FOREIGN" = yes ]; then
    [ "$SHELL_KIND" != intel ] || { echo "bad CPU type in executable" >&2; exit 126; }
    this=$other
fi
online() { [ "$NETWORK" = yes ] || { echo "ERROR: [Errno 8] nodename nor servname provided" >&2; exit 1; }; }
case "$*" in
-c*) echo "$MINOR $this $0" ;;
"-m pip --version") [ "$PIP" = yes ] ;;
"-m pip download "*) [ "$PIP" = yes ] || exit 1; note ask; online; whole "$*" ;;
"-m pip install "*--target*)
    note fetch uv; online
    mkdir -p "$CLONE/.venvs/uv/bin"; cp_uv "$CLONE/.venvs/uv/bin/uv" ;;
"-m venv "*) for home; do :; done; note venv $MINOR $this $home; new "$home/bin/python" $MINOR $FOREIGN ;;
"-m pip install "*) note "install pip $0 $*"; online; whole "$*" ;;
*) note run $0 $* ;;
esac
"""
UV = """
online() { [ "$NETWORK" = yes ] || { echo "error: dns error" >&2; exit 1; }; }
case "$*" in
"pip install --help") [ "$OLD" = yes ] || echo "      --group <GROUP>" ;;
"venv --help") [ "$OLD" = yes ] || echo "  -c, --clear" ;;
"pip compile "*) note ask; online; [ "${SIM_UV:-}" != offline ] || { echo "error: no certificate" >&2; exit 2; } ;;
"python install "*)
    note fetch python; online
    foreign=yes
    case $SHELL_KIND/$4 in intel/*-x86_64-none | [nr]*/*-aarch64-none) foreign=no ;; esac
    new "$UV_PYTHON_INSTALL_DIR/cpython-3.11.14-macos-aarch64-none/bin/python3.11" 11 $foreign ;;
"venv "*)
    while [ $# -gt 1 ]; do [ "$1" != --python ] || base=$2; shift; done
    set -- "$1" $("$base" -c about); note venv $2 $3 $1; new "$1/bin/python" $2 no ;;
"pip install "*) note "install uv $*"; online; whole "$*" ;;
*) note "unknown uv $*"; exit 2 ;;
esac
"""


class Simulated:
    """A Mac in a directory."""

    def __init__(self, mac: Mac, place: Path) -> None:
        """Make it below `place`."""
        self.mac, self.place, self.home = mac, place, place / "Users" / "ada"
        self.clone = self.home / mac.folder / "stallguard"
        self.system = place / "root"
        for folder in (self.clone, self.system / "usr" / "bin", place / "bin", place / "real"):
            folder.mkdir(parents=True)
        for name in ("scripts", "pyproject.toml"):
            (self.clone / name).symlink_to(ROOT / name)
        for name in REAL.split():
            (place / "real" / name).symlink_to(
                next(p for p in ("/bin", "/usr/bin") if Path(p, name).exists()) + f"/{name}"
            )
        self._common()
        self._tools()
        dirs = [str(place / "bin"), *self._pythons(), str(self.system / "usr" / "bin"), str(place / "real")]
        self.env = {
            "PATH": ":".join(dirs),
            "HOME": str(self.home),
            "STALLGUARD_MAC_ROOT": str(self.system),
            "TMPDIR": str(place),
        }

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def _common(self) -> None:
        yes = {True: "yes", False: "no"}
        facts = (
            f"SIM={self.place} CLONE={self.clone} NETWORK={yes[self.mac.network]} SHELL_KIND={self.mac.processor}\n"
            'whole() { case "$1" in *"${SIM_BROKEN:-nothing broken}"*) exit 1 ;; esac; }\n'
            f'note() {{ echo "$*" >> {self.place}/log; }}\n'
            f'cp_uv() {{ cat {self.place}/uv > "$1"; chmod +x "$1"; }}\n'
        )
        (self.place / "facts.sh").write_text(facts + NEW)
        (self.place / "python.sh").write_text(f". {self.place}/facts.sh\n{PYTHON}")
        for name, old in (("uv", "no"), ("uv-old", "yes")):
            self._write(self.place / name, f"OLD={old}\n. {self.place}/facts.sh\n{UV}")
        (self.place / "log").touch()

    def _tools(self) -> None:
        mac, here = self.mac, self.place / "bin"
        apple = mac.processor != "intel"
        free = {"much": 90_000_000, "little": 900_000, "unknown": 0}[mac.room]
        translated = '[ -z "${SIM_NATIVE:-}" ] && echo 1 || echo 0' if mac.processor == "rosetta" else "echo 0"
        disk = (
            "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'; "
            f"echo '/dev/disk3s5 994662584 1 {free} 50% /System/Volumes/Data'"
        )
        known = f"hw.optional.arm64) echo 1 ;; sysctl.proc_translated) {translated} ;;"
        told = {
            "uname": '[ "$1" = -s ] && echo Darwin || echo unknown',
            "sysctl": f"case $2 in {known if apple else ''} *) echo unknown oid >&2; exit 1 ;; esac",
            "sw_vers": f"echo {mac.system}",
            "xcode-select": "echo /Library/Developer/CommandLineTools" if mac.tools else "echo error >&2; exit 2",
            "df": disk if mac.room != "unknown" else "exit 1",
            "launchctl": f"echo {mac.session}",
            "arch": 'shift; SIM_NATIVE=1 exec "$@"',
        }  # fmt: skip
        for name, text in told.items():
            self._write(here / name, text + "\n")
        if mac.tools:
            self._write(self.system / "usr/bin/python3", f"MINOR=9 FOREIGN=no PIP=yes\n. {self.place}/python.sh\n")
        else:
            self._write(self.system / "usr/bin/python3", f"echo DIALOGUE >> {self.place}/log; exit 1\n")
        places = {"path": here, "home": self.home / ".local/bin", "old": here}
        if mac.uv != "none":
            text = (self.place / ("uv-old" if mac.uv == "old" else "uv")).read_text()
            self._write(places[mac.uv] / "uv", text.removeprefix("#!/bin/sh\n"))

    def _pythons(self) -> Iterator[str]:
        for number, minor in enumerate(self.mac.pythons):
            foreign = "yes" if _foreign(self.mac, number) else "no"
            text = f"MINOR={minor} FOREIGN={foreign} PIP={'yes' if self.mac.pip else 'no'}\n. {self.place}/python.sh\n"
            place = {
                "homebrew": self.system / "opt/homebrew/bin",
                "installer": self.system / f"Library/Frameworks/Python.framework/Versions/3.{minor}/bin",
                "pyenv": self.home / f".pyenv/versions/3.{minor}.7/bin",
                "uv": self.home / f".local/share/uv/python/cpython-3.{minor}.9-macos/bin",
            }.get(self.mac.place if minor in (11, 12) else "path")
            if place is None:
                place = self.place / "path" / str(number)
                self._write(place / "python3", text)
                yield str(place)
            self._write(place / f"python3.{minor}", text)

    def live(self, **env: str) -> tuple[Outcome, str, list[str]]:
        """Call scripts/live; return what it did, what it said, and what was asked of the tools."""
        (self.place / "log").write_text("")
        done = subprocess.run(
            ["/bin/sh", self.clone / "scripts/live", *self.mac.words], env=self.env | env, cwd=self.clone,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        log = (self.place / "log").read_text().splitlines()
        return self._outcome(done.returncode, done.stdout, log), done.stdout, log

    def _outcome(self, code: int, said: str, log: list[str]) -> Outcome:
        lines = said.splitlines()
        against = frozenset(name for name, words in SENTENCES.items() if any(words in line for line in lines))
        venvs = {line.split()[3]: line.split() for line in log if line.startswith("venv ")}
        main = venvs.get(str(self.clone / ".venv"))
        installs = [line.split() for line in log if line.startswith("install ")]
        pairs = {name for name, text in PAIRS.items() if any(text in " ".join(words) for words in installs)}
        by = {words[1] for words in installs}
        return Outcome(
            code,
            against,
            int(main[1]) if main else 0,
            " ".join(sorted(by)),
            frozenset(pairs),
            "an Intel processor" in said,
        )


def wrong(mac: Mac, outcome: Outcome, said: str, log: list[str]) -> list[str]:
    """Return what is not as it must be, a sentence each."""
    must = expected(mac)
    found = [f"{name}: {getattr(outcome, name)!r}, not {getattr(must, name)!r}"
             for name in Outcome._fields if getattr(outcome, name) != getattr(must, name)]  # fmt: skip
    told = [line for line in said.splitlines() if line.startswith("scripts/live: ")]
    began = [line for line in log if line.startswith("run ")]
    venvs = [line.split() for line in log if line.startswith("venv ")]
    scratch = [words for words in venvs if "/tmp." in words[3]]  # for the pip of a Python that has none
    installs = [number for number, line in enumerate(log) if line.startswith(("install", "venv"))]
    native = "x86_64" if mac.processor == "intel" else "arm64"
    announced = any("MB (" in line and " min at " in line for line in said.splitlines())
    asked = [number for number, line in enumerate(log) if line.startswith(("ask", "fetch"))]
    checks = {
        "a dialogue is opened": "DIALOGUE" in log,
        "a tool is asked what it does not know": any(line.startswith("unknown") for line in log),
        "something is installed before a refusal": must.code and len(installs) > len(scratch),
        "the network is used though something else stands against it":
            must.against - {"network", "no fetch"} and asked,
        "an environment is for another processor": any(words[2] != native for words in venvs),
        "size and time are not said": not must.code and not announced,
        "the walk does not begin, or begins after a refusal": bool(began) == bool(must.code),
        "not a line for each refusal": must.code and len(told) != len(must.against) + must.says_intel,
        "the network is not asked first": not must.code and not (asked and asked[0] <= installs[0] + len(scratch)),
        "Rosetta is left without a word": mac.processor == "rosetta" and "outside of it" not in said,
    }  # fmt: skip
    return found + [name for name, true in checks.items() if true]


# Those in whose way nothing stands: what is chosen and installed shows only on these.
NOTHING_AGAINST = DIMENSIONS | {
    "system": ("15.7", "26.1"), "tools": (True,), "network": (True,), "room": ("much", "unknown"), "session": ("Aqua",),
    "folder": ("src",),
}  # fmt: skip


def every_pair(dimensions: Mapping[str, Sequence[object]], seed: int) -> list[Mac]:
    """Return Macs, chosen by this seed, in which each pair of values of each two dimensions is met."""
    chance, names = random.Random(seed), list(dimensions)
    values = {name: list(dict.fromkeys(dimensions[name])) for name in names}
    left = {
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in values[a] for y in values[b]
    }  # fmt: skip
    macs = []
    while left:
        tries = [{name: chance.choice(values[name]) for name in names} for _ in range(40)]
        (a, x), (b, y) = min(left, key=repr) if chance.random() < 0.5 else chance.choice(sorted(left, key=repr))
        tries = [one | {a: x, b: y} for one in tries]
        best = max(tries, key=lambda one: len(left & set(itertools.combinations(one.items(), 2))))
        left -= set(itertools.combinations(best.items(), 2))
        macs.append(Mac(**best))
    return macs


def at_random(number: int, seed: int) -> list[Mac]:
    """Return Macs of which most can be walked."""
    chance = random.Random(seed)
    return [Mac(**{name: chance.choice(values) for name, values in DIMENSIONS.items()}) for _ in range(number)]


def tried(mac: Mac) -> tuple[Mac, Outcome, list[str], str]:
    """Return what the scripts do on a Mac, and what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="mac-") as place:
        outcome, said, log = Simulated(mac, Path(place)).live()
        return mac, outcome, wrong(mac, outcome, said, log), said + "\n".join(log)


def row(mac: Mac, outcome: Outcome, errors: Sequence[str]) -> str:
    """Return a line of the table."""
    pythons = ",".join(f"3.{minor}" for minor in mac.pythons) or "none"
    if outcome.code:
        did = "refuses: " + ", ".join(sorted(outcome.against))
    else:
        did = f"3.{outcome.python} by {outcome.by}: {', '.join(sorted(outcome.pairs))}"
    flags = " ".join(("pip" if mac.pip else "-", "tools" if mac.tools else "-", "net" if mac.network else "-"))
    return (
        f"{mac.system:7}{mac.processor:8}{pythons:32}{mac.made_for:6}{mac.place:10}uv:{mac.uv:5}{flags:14}{mac.room:8}"
        f"{mac.session[:4]:5}{mac.folder[:4]:5}{' '.join(mac.words):13}{did}"
        f"{'  WRONG: ' if errors else ''}{'; '.join(errors)}"
    )


def main() -> int:
    """Print the table."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    macs = every_pair(DIMENSIONS, 1) + every_pair(NOTHING_AGAINST, 2) + at_random(number, 3)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(tried, macs))
    for mac, outcome, errors, _ in results:
        print(row(mac, outcome, errors))
    bad = sum(bool(errors) for _, _, errors, _ in results)
    print(f"{len(macs)} Macs, {sum(not outcome.code for _, outcome, _, _ in results)} walked, {bad} wrong")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

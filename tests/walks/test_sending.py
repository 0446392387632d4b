"""Nothing is written before its user has seen what it has, and a refusal keeps nothing."""

from __future__ import annotations

import os
import zipfile

import pytest


@pytest.fixture
def files():
    return {"rows.json": "[]\n", "tools/ps.txt": "x" * 2048, "tools/top.txt": "", "junit-tests.xml": "<a/>"}


@pytest.mark.parametrize(
    ("answer", "is_written"), [(True, True), (None, True), (False, False), (KeyboardInterrupt, False)]
)
def test_the_contents_are_listed_and_asked_for_and_lie_there_to_be_looked_at(tmp_path, files, answer, is_written):
    from mac import sending

    said, path, look = [], tmp_path / "walk.zip", tmp_path / "look"

    def agreed(question):
        assert str(path) in question
        assert not path.exists()
        assert (look / "tools/ps.txt").read_text() == files["tools/ps.txt"]
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        return answer

    told = sending.offer(files, path, look, said.append, agreed)
    lines = said[0].splitlines()
    assert str(look) in said[0]
    assert [line.split("  ")[1].strip() for line in lines if line.startswith("  ")] == [
        "junit-tests.xml", "rows.json", "tools/ (2 files)",
    ]  # fmt: skip
    assert "2.0 KiB  what the tools of the system said" in said[0]
    assert path.exists() is is_written
    assert told == sending.REFUSED if not is_written else str(path) in told
    if is_written:
        with zipfile.ZipFile(path) as made:
            assert sorted(made.namelist()) == sorted(files)


def test_the_names_of_this_machine_and_the_place_of_the_clone_are_masked(tmp_path, monkeypatch):
    from mac import owner, sending

    root = tmp_path / "Wexcombe Works" / "clone"
    (root / "stallguard").mkdir(parents=True)
    (root / "stallguard/x.py").write_text("machine = 1")
    monkeypatch.setattr(owner, "_said", lambda *words: "Quillon Vexley" if words[:2] == ("git", "config") else "")
    monkeypatch.setattr(owner.platform, "node", lambda: "quillons-zephyr.local")
    masks = sending.of_this_machine(root, tmp_path, owner.names())

    text = f"{root}/tests/x.py: Vexley at quillons-zephyr, machine of {tmp_path}"
    assert masks.clean(text).endswith("machine of ~")
    assert masks.clean(text).startswith("[clone]/tests/x.py: user-")
    assert not {"wexcombe", "vexley", "zephyr"} & set(masks.clean(text).lower().replace("-", " ").split())


def test_a_tool_that_is_absent_or_refuses_names_no_one(monkeypatch):
    from mac import owner

    assert owner._said("/no/such/tool") == owner._said("false") == ""
    monkeypatch.setattr(owner.sys, "platform", "darwin")
    monkeypatch.setitem(os.environ, "PATH", "")
    assert all(kind in ("user", "machine", "network", "serial") for kind, _ in owner.names())


def test_a_mac_says_its_names_its_accounts_its_serial_numbers_and_its_network(monkeypatch):
    from mac import owner

    answers = {
        ("/usr/sbin/scutil", "--get", "ComputerName"): "Quillon\u2019s Zephyr",
        ("/usr/bin/id", "-F"): "Quillon Vexley",
        ("/usr/bin/defaults", "read", "MobileMeAccounts"): "{\n    Accounts =     (\n                {\n"
        '            AccountID = "quill@vexley.example";\n            DisplayName = "Q. Vexley";\n',
        ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"): '    |   "IOPlatformSerialNumber" = "C02XQ1YZ"\n',
        ("/usr/sbin/ipconfig", "getsummary", "en0"): "  BSSID : <redacted>\n  SSID : Vexleynet\n",
    }
    monkeypatch.setattr(owner.sys, "platform", "darwin")
    monkeypatch.setattr(owner, "_said", lambda *words: answers.get(words, ""))
    found = set(owner.names())
    assert {("machine", "Quillon\u2019s Zephyr"), ("user", "Quillon Vexley"), ("user", "quill@vexley.example"),
            ("user", "Q. Vexley"), ("serial", "C02XQ1YZ"), ("network", "Vexleynet")} <= found  # fmt: skip
    assert ("network", "<redacted>") not in found

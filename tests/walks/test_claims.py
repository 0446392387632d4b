"""A walk decides which claims of the documents hold: those whose proof is one of its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

TOML = """
[[claim]]
text = "The GPU is read without root."
where = "docs/overnight.md"
proof = ["recording:ioreg_perfstats", "walk:gpu"]

[[claim]]
text = "A job comes back after kill -9."
where = "README.md"
proof = ["walk:kill -9", "walk:gpu"]

[[claim]]
text = "Each Python's stacks are sampled."
where = "docs/evidence.md"
proof = ["walk:sample *"]

[[claim]]
text = "A night on battery goes on."
where = "docs/overnight.md"
proof = ["walk:night on battery"]

[[claim]]
text = "Metal waits are named."
where = "README.md"
proof = ["nothing"]
"""


@pytest.fixture
def rows():
    from mac.table import HELD, UNASKED, Row, judged

    return [
        Row("gpu", HELD, "3 %"), judged("kill -9", holds=False, figure="no process\x1b[31m", means="it comes back"),
        Row("sample stallguard's", HELD, "4 threads"), Row("sample Apple's", UNASKED, "", "absent"),
    ]  # fmt: skip


def test_a_claim_is_held_or_refuted_by_its_rows_and_unknown_without_them(tmp_path, rows):
    from mac import claims

    (tmp_path / "claims.toml").write_text(TOML)
    found = claims.judged(claims.read(tmp_path / "claims.toml"), rows)

    assert [(one.verdict, one.claim.text) for one in found] == [
        ("refuted", "A job comes back after kill -9."),
        ("unknown", "Each Python's stacks are sampled."),
        ("unknown", "A night on battery goes on."),
        ("held", "The GPU is read without root."),
    ]
    told = claims.lines(found)
    assert told[0] == "refuted README.md: A job comes back after kill -9."
    assert told[1].strip() == "kill -9: no process?[31m", "what steers a terminal is not printed"
    assert "night on battery: no such row" in "\n".join(told)
    assert told[-1] == "4 claims that a walk can prove: 1 held, 1 refuted, 2 unknown"


@pytest.mark.parametrize("text", ["[[claim]\n", '[[claim]]\ntext = "x"\n', "claim = 3\n", "claim = [3]\n"])
def test_a_file_of_claims_that_cannot_be_read_is_told_in_a_sentence(tmp_path, text):
    from mac import claims

    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(claims.Unreadable, match="has no claims that can be read"):
        claims.read(tmp_path / "claims.toml")
    assert claims.read(tmp_path / "absent.toml") == []


def test_the_claims_of_this_project_can_be_read():
    from mac import claims

    for claim in claims.read(Path(__file__).parents[1] / "live" / "claims.toml"):
        assert claim.text
        assert claim.proof

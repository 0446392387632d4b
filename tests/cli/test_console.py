"""A file that a user names is whole, or as it was; a page is printed without blanks at the end of a line."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.padding import Padding

from stallguard.cli._console import print_blocks, writing
from stallguard.errors import CANNOT_RUN, StallguardError


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    target = tmp_path / "page.html"
    target.write_text("before")

    with pytest.raises(KeyboardInterrupt), writing(target, "--html"):
        raise KeyboardInterrupt
    assert target.read_text() == "before"
    with writing(target, "--html") as file:
        file.write(b"whole")

    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["absent/page.html", "taken"])
def test_a_file_that_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path, name):
    (tmp_path / "taken").mkdir()

    with pytest.raises(StallguardError, match="cannot write") as refused, writing(tmp_path / name, "-o") as file:
        file.write(b"text")

    assert (refused.value.code, refused.value.cure) == (CANNOT_RUN, "choose another: -o FILE")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_draft_is_never_written_through_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 7)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of another user")
    (tmp_path / ".page.html.7").symlink_to(elsewhere)

    with writing(tmp_path / "page.html", "--html") as file:
        file.write(b"text")

    assert elsewhere.read_text() == "of another user"


def test_no_printed_line_ends_in_blanks():
    target = Console(file=io.StringIO(), width=20)
    print_blocks([Padding("text", (1, 4, 0, 2))], target)

    assert target.file.getvalue() == "\n  text\n"

"""Foreign text can neither steer a terminal nor turn a page around, and loses no word."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from stallguard.report.sanitize import plain, screen

TURNS = {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI", "FSI", "PDF", "PDI"}


@given(st.text(st.characters(codec=None)))
@example("\x1b]0;owned\x07\u202egnp.exe\u2066\x9b31m\ud800\x7f")
def test_nothing_that_acts_is_left(text):
    kinds = {unicodedata.category(character) for character in plain(text)} - {"Cn", "Co"}

    assert {character for character in plain(text) if unicodedata.category(character) == "Cc"} <= {"\n", "\t"}
    assert "Cs" not in kinds
    assert not any(
        unicodedata.bidirectional(c) in {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI", "PDF"} for c in plain(text)
    )
    assert plain(plain(text)) == plain(text)


def test_what_was_there_is_named():
    assert plain("\x1b[31mred\x7f \u202eabc") == "\u241b[31mred\u2421 <U+202E>abc"


def test_words_of_any_script_stay():
    text = "\u05e9\u05dc\u05d5\u05dd \u4f60\u597d na\xefve\tx\n"
    assert plain(text) == text


@given(st.binary(max_size=400), st.integers(1, 5), st.integers(2, 40))
def test_a_screen_has_its_size_whatever_is_printed(data, lines, columns):
    shown = screen(data, lines, columns)

    assert len(shown) <= lines
    assert all(len(line) <= columns and "\n" not in line for line in shown)


def test_of_a_progress_bar_the_last_state_is_kept_and_colours_are_left_out():
    bar = b"Epoch 1\r\n\r1/40 [>...] loss: 2.3\r40/40 \x1b[32m[====]\x1b[0m loss: 1.9\nnext\x08\x08\x08\x08over\n"

    assert screen(bar, 9, 80) == ["Epoch 1", "40/40 [====] loss: 1.9", "over"]


def test_invalid_utf_8_and_other_escapes_are_shown_as_such():
    assert screen(b"caf\xe9 \x1b]0;title\x07", 9, 80) == ["caf\ufffd \u241b]0;title\u2407"]

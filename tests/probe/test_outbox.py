"""The page that the supervisor maps, and the messages: each fits a datagram, and none fails the training."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe import outbox, wire
from stallguard.probe.outbox import LIMIT, WAITING, Outbox

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)


@given(JSON)
def test_what_is_encoded_is_json(value: Any) -> None:
    assert json.loads(outbox.encode(value)) == value


@given(st.text(max_size=3000), st.dictionaries(st.text(max_size=9), st.text(max_size=3000), max_size=4))
def test_a_note_fits_a_datagram_and_keeps_its_beginning(text: str, facts: dict[str, object]) -> None:
    one = Outbox(7, 1)
    one.note("hooks", text, facts)

    for data in one.waiting():  # none if its facts alone are too long
        assert len(data) <= LIMIT
        note = json.loads(data)
        assert text.startswith(note["text"])
        assert note["facts"].keys() == facts.keys()


def test_the_oldest_notes_are_kept_and_those_of_a_parent_are_not_sent_by_a_fork() -> None:
    one = Outbox(7, 1)
    for number in range(WAITING + 5):
        one.note("n", str(number), {})
    one.sent()

    assert [json.loads(data)["text"] for data in one.waiting()] == [str(n) for n in range(1, WAITING)]
    one.forked(2)
    assert one.waiting() == []
    assert json.loads(one.hello())["pid"] == 2


def test_a_hello_that_is_too_long_loses_its_last_sentences_and_nothing_else() -> None:
    one = Outbox(7, 1)
    one.hook_installed("fit")
    for number in range(9):
        one.beyond(f"{number} " + "x" * 300)
    hello = json.loads(one.hello())

    assert [sentence[0] for sentence in hello["beyond"]] == list("0123"[: len(hello["beyond"])])
    assert 0 < len(hello["beyond"]) < 9
    assert hello["hooks"] == ["fit"]


def test_each_change_of_the_hello_is_a_new_revision_and_a_repetition_is_none() -> None:
    one = Outbox(7, 1)
    for change in (lambda: one.hook_installed("fit"), lambda: one.version("keras", "3"), lambda: one.arm(True)):
        before = one.revision
        change()
        change()
        assert one.revision == before + 1


def test_a_page_is_whole_under_its_name_and_an_old_mapping_of_it_stays_valid(tmp_path: Path) -> None:
    path = tmp_path / "1.page"
    outbox.moved(outbox.begin(outbox.private(), token=7, pid=1, now=1), str(path))
    with path.open("rb") as file:
        old = mmap.mmap(file.fileno(), wire.SIZE, prot=mmap.PROT_READ)
    slots = outbox.moved(outbox.begin(outbox.private(), token=8, pid=1, now=1), str(path))
    slots[wire.SLOT["beats"]] = 3

    seen, before = wire.unpack(path.read_bytes()), wire.unpack(old[:])
    assert seen is not None
    assert before is not None
    assert (seen["token"], seen["beats"], before["token"]) == (8, 3, 7)
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_gives_private_memory(tmp_path: Path) -> None:
    slots = outbox.moved(outbox.begin(outbox.private(), token=7, pid=1, now=1), str(tmp_path / "gone" / "1.page"))

    assert slots[wire.SLOT["token"]] == 7


def test_threads_that_only_show_progress_are_named_while_they_live_beside_the_probes_own() -> None:
    one = Outbox(7, 1)
    one.service_threads([5])
    one.displays([8, 9])
    before = one.revision
    one.displays([8, 9])
    assert (one.revision, json.loads(one.hello())["threads"]) == (before, [5, 8, 9])

    one.displays([9])
    assert json.loads(one.hello())["threads"] == [5, 9]
    one.forked(2)
    assert json.loads(one.hello())["threads"] == []

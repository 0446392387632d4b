"""The settings of the probe arrive as they were sent, and a variable that is damaged harms nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe import settings
from stallguard.probe.settings import ProbeSettings

KINDS = {
    "str": st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",))),
    "int": st.integers(),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
}
VALUES = st.fixed_dictionaries({}, optional={
    name: KINDS[kind] for name, kind in ProbeSettings.__annotations__.items()
})  # fmt: skip


def facts(one: ProbeSettings) -> dict[str, object]:
    return {name: getattr(one, name) for name in ProbeSettings.__annotations__}


@given(VALUES)
def test_what_is_sent_arrives(values: dict[str, Any]) -> None:
    sent = ProbeSettings(**values)
    text = settings.encode(sent)

    assert facts(settings.of({settings.VARIABLE: text})) == facts(sent)
    assert "\n" not in text  # tools read environments line by line


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    settings.of({settings.VARIABLE: text})


def test_what_is_unknown_is_left_out_and_no_number_is_the_default() -> None:
    read = settings.of({settings.VARIABLE: "later=1;token=7;slices=two;checkpoint_every=;resume=yes;pages=p"})

    assert facts(read) == facts(ProbeSettings(token=7, pages="p"))
    assert facts(settings.of({})) == facts(ProbeSettings())


def test_a_change_of_the_environment_is_read() -> None:
    """A process changes its own copy: what was read before must not hold for another text."""
    assert [settings.of({settings.VARIABLE: f"token={number}"}).token for number in (1, 2, 1)] == [1, 2, 1]


def test_it_passes_through_a_child() -> None:
    sent = settings.encode(ProbeSettings(pages="/tmp/ä; b\n%3b", token=7))
    shown = subprocess.run(
        [sys.executable, "-c", f"import os; print(ascii(os.environ[{settings.VARIABLE!r}]))"],
        env={settings.VARIABLE: sent}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert shown.stdout.strip() == ascii(sent)

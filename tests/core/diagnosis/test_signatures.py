"""The table of log signatures against the lines it was made for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.diagnosis import signatures
from stallguard.core.diagnosis.signatures import TABLE

RECORDINGS = Path(__file__).parents[2] / "recordings"
LINES: dict[str, str] = {
    name: row["line"] for name, row in json.loads((RECORDINGS / "signatures.json").read_text()).items()
}


def test_every_signature_has_a_line_and_every_line_a_signature() -> None:
    assert set(LINES) == set(signatures.BY_ID)
    assert len(signatures.BY_ID) == len(TABLE)


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_signature_is_seen_in_its_own_line(name: str) -> None:
    assert name in [signature.id for signature in signatures.matches(LINES[name])]


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_signature_is_seen_nowhere_else(name: str) -> None:
    """A line may show two things only where one contains the other: an exception and its reason."""
    announcers = {"libcxxabi", "libstdcxx", "mlx_cb_failed", "iogpu_exec_abort", "mtl_domain", "mps_assert"}
    seen = {signature.id for signature in signatures.matches(LINES[name])} - announcers - {name}
    assert name in announcers or not seen


def test_the_reason_comes_before_the_line_that_announces_it() -> None:
    seen = [signature.id for signature in signatures.matches(LINES["mlx_cb_failed"])]
    assert seen == ["iogpu_oom", "mlx_cb_failed", "libcxxabi"]


def test_a_symbol_that_is_missing_on_the_next_line_is_the_plug_ins() -> None:
    before = "dlopen(/x/tensorflow-plugins/libmetal_plugin.dylib, 0x0006)"
    line = "  Symbol not found: __ZN3tsl8internal10LogMessageC1EPKcii"
    assert [one.id for one in signatures.matches(line, before)] == ["plugin_symbol"]
    assert signatures.matches(line, "dlopen(/x/other.dylib)") == []


@pytest.mark.parametrize(
    "line",
    [
        "1264/1264 [====] - ETA: 0s - loss: 0.5 - mean_squared_error: 0.25",
        "Epoch 3: val_loss did not improve from 0.12345", "GPU 0: NVIDIA H200 (utilization 97 %), memory 120 GB",
        "ValueError: the shapes do not fit", "WARNING: the cache is not used",
        "Saved 12 checkpoints; allocated 3 buffers", "mutex acquired by worker 3", "zsh: command not found: foo",
    ],
)  # fmt: skip
def test_ordinary_lines_mean_nothing(line: str) -> None:
    assert signatures.matches(line) == []


def test_a_row_says_what_it_means_and_where_that_is_known_from() -> None:
    for signature in TABLE:
        assert len(signature.meaning) > 15
        assert re.match(r"gh:|strings of|keras|TensorFlow|docs\.|cppreference|CUDA", signature.source)
        assert signature.family.isupper()


def test_few_texts_are_searched_for_in_ordinary_output() -> None:
    assert len(signatures.keys()) <= 32


@given(st.sampled_from(TABLE), st.text(alphabet="(MPSNDArray 0x12:kIO)'`*\n", max_size=2000))
def test_no_regex_takes_long_whatever_it_sees(signature: signatures.Signature, text: str) -> None:
    signature.pattern.search(LINES[signature.id][:30] + text)

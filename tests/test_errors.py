"""How a run ended, by its exit code and the reason; and which name was meant."""

from __future__ import annotations

import pytest

from stallguard import errors

ENDINGS = [
    (0, "", 0, "finished"),
    (1, "exit code 1", 1, "failed"),
    (errors.STOPPED_ON_TIME, "the time is up", None, "stopped"),
    (errors.STOPPED_ON_TIME, "exit code 75", errors.STOPPED_ON_TIME, "failed"),
    (errors.GAVE_UP, "three stalls", None, "gave up"),
    (130, "interrupted by Ctrl-C", None, "interrupted"),
    (143, "signalled by SIGTERM", None, "stopped"),
    (143, "killed by signal 15", None, "failed"),
]


@pytest.mark.parametrize(("code", "why", "script_code", "state"), ENDINGS)
def test_a_script_that_ends_with_a_code_of_ours_has_failed(code, why, script_code, state):
    assert errors.ending(code, why, script_code) == state
    assert errors.has_failed(code, why, script_code) is (state in ("failed", "gave up"))
    assert errors.was_requested(code, why, script_code) is (state in ("stopped", "interrupted"))


def test_an_error_has_the_lines_that_it_was_given():
    error = errors.StallguardError("it broke", cure="mend it")
    assert (str(error), error.lines(), error.code) == ("it broke", ["it broke", "mend it"], errors.OWN_FAILURE)


def test_the_nearest_name_is_offered_only_if_it_is_near():
    assert errors.nearest("statsu", ("status", "stop")) == "status"
    assert errors.nearest("statsu", ("report",)) is None

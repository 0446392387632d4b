"""What the walk makes of outputs: recorded ones, and those that a Mac on which it does not hold would print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parent.parent / "recordings" / "macos"
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


@pytest.fixture
def say():
    """The verdicts; imported here because the walk's path is set for each test."""
    from mac import verdicts

    return verdicts


def test_a_gpu_that_is_read_in_time_holds_and_a_slow_or_blind_one_does_not(say):
    text = recorded("ioreg_ioaccelerator_g14x_41pct_trimmed.txt")
    row = say.gpu(text, 0.04)
    assert (row.verdict, row.figure.split(":")[1].split(",")[0].strip()) == (HELD, "41% busy")
    assert say.gpu(text, 4.0).verdict == FAILED
    assert say.gpu(text.replace('"Device Utilization %"', '"Of Another Name"'), 0.04).verdict == FAILED


def test_a_virtual_gpu_and_none_are_no_answer(say):
    text = recorded("ioreg_ioaccelerator_g14x_41pct_trimmed.txt")
    assert say.gpu(re.sub(r"AGXAccelerator\w+", "AppleParavirtGPU", text), 0.04).verdict == UNASKED
    assert say.gpu("", 0.04).verdict == UNASKED


def test_memory_names_what_is_not_reported(say):
    announced, pages = (recorded("sysctl_memory_loaded_48g_18core.txt"), recorded("vm_stat_m_series_32g_healthy.txt"))
    more = "\nhw.memsize: 51539607552\nvm.compressor_bytes_used: 1\n"
    assert say.memory(announced + more, pages).figure == "not reported: paged_limit"
    more += "vm.compressor_segment_limit: 1629615\nvm.compressor_segment_buffer_size: 65536\n"
    row = say.memory(announced + more, pages)
    assert (row.verdict, row.figure) == (HELD, "pressure warn")
    assert "available, swap_outs" in say.memory(announced, "").figure


def test_two_notes_of_pmset_are_a_cool_mac(say):
    therm = recorded("pmset_g_therm_apple_silicon_nominal.txt")
    assert say.surroundings(therm, "Now drawing from 'AC Power'\n").verdict == HELD
    assert say.surroundings(therm, "Strom vom Netz").verdict == FAILED


def test_a_sample_without_threads_does_not_hold(say):
    text = recorded("sample_python_blocked_lock_excerpt.txt")
    assert say.sample("uv's", text, 0, 1.2).verdict == HELD
    assert say.sample("uv's", text, 1, 1.2).verdict == FAILED
    assert say.sample("uv's", "sample cannot examine process 7", 0, 1.2).verdict == FAILED


def test_caffeinate_must_hold_on_our_behalf_and_let_go(say):
    text = recorded("pmset_g_assertions_caffeinate_w.txt")
    row = say.caffeinate(text, "", 30490)
    assert (row.verdict, row.figure) == (HELD, "PreventSystemSleep, PreventUserIdleSystemSleep")
    assert say.caffeinate(text, "", 30491).verdict == FAILED, "another's"
    assert "still afterwards" in say.caffeinate(text, text, 30490).figure


TIMES = (
    "kern.boottime: { sec = 1000, usec = 1 } Mon\n"
    "kern.sleeptime: { sec = %d, usec = 0 }\nkern.waketime: { sec = %d, usec = 0 }\n"
)


def test_our_clock_must_count_the_kernels_sleep(say):
    assert say.slept(TIMES % (2000, 2600), 640.0).verdict == HELD
    assert say.slept(TIMES % (2000, 2600), 3.0).verdict == FAILED
    assert say.slept(TIMES % (0, 0), 0.0).verdict == UNASKED


def looks(say, *gpu_times: int):
    """Return looks 5 s apart, a batch in each, that submit all the time."""
    return [say.Look(5.0 * n, n, time, 24_000_000 * 5 * n + 1) for n, time in enumerate(gpu_times)]


def test_a_gpu_counter_that_stands_while_batches_end_is_no_measure(say):
    assert say.moves(looks(say, 1, 2, 3)).verdict == HELD
    still = [say.Look(0.0, 1, 7, 7), say.Look(5.0, 2, 7, 7)]
    assert say.moves(still).verdict == FAILED
    assert say.moves([say.Look(0.0, 1, 7, 7), say.Look(5.0, 1, 7, 7)]).verdict == UNASKED


def test_the_unit_of_the_last_submission_is_found_or_said_to_be_none(say):
    assert say.unit(looks(say, 1, 2, 3), 125 / 3 * 1e-9).figure == "ticks of mach time"
    nano = [say.Look(5.0 * n, n, n, 5_000_000_000 * n + 1) for n in range(4)]
    assert say.unit(nano, 125 / 3 * 1e-9).figure == "nanoseconds"
    assert "a second" in say.unit([say.Look(5.0 * n, n, n, 9 * n + 1) for n in range(4)], 1e-9).figure
    assert say.unit([], 1e-9).verdict == UNASKED


def test_stacks_must_come_each_time_and_soon(say):
    assert say.stacks([0.1, 0.2], 2).verdict == HELD
    assert say.stacks([0.1], 2).verdict == FAILED
    assert say.stacks([0.1, 3.0], 2).verdict == FAILED
    assert say.stacks([], 2).verdict == FAILED


def test_launchds_default_is_read_from_every_recording_that_tells_it(say):
    row = say.default_exit(recorded("launchctl_print_running_runatload.txt"))
    assert (row.verdict, row.figure) == (HELD, "5 s")
    assert say.default_exit("").verdict == FAILED


def test_a_job_is_in_force_as_it_was_written_or_not(say):
    text = recorded("launchctl_print_keepalive_successfulexit_smappservice.txt")
    assert say.in_force(text, 30).verdict == HELD
    assert say.in_force(text, 150).verdict == FAILED
    assert say.in_force(recorded("launchctl_print_running_runatload.txt"), 5).verdict == FAILED, "no Interactive"


def test_a_job_that_is_switched_off_is_recognised_by_number_and_by_list(say):
    listed = '\t\t"com.stallguard.walk" => disabled\n'
    assert say.disabled(119, "", listed, "com.stallguard.walk").verdict == HELD
    assert say.disabled(5, "", listed, "com.stallguard.walk").verdict == HELD
    assert say.disabled(5, "", "", "com.stallguard.walk").verdict == FAILED
    assert say.disabled(0, "", listed, "com.stallguard.walk").verdict == FAILED


@pytest.mark.parametrize(
    ("text", "code", "verdict", "figure"),
    [
        ("ls: Operation not permitted", 1, HELD, "refused"),
        ("", None, HELD, "it waits"),
        ("a file", 0, FAILED, "readable"),
    ],
)
def test_what_a_job_meets_in_a_guarded_folder(say, text, code, verdict, figure):
    row = say.protected(text, code)
    assert (row.verdict, row.figure) == (verdict, figure)

"""The same hang has the same name, another hang another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stallguard.collectors import stacks
from stallguard.report import incident_name

RECORDINGS = Path(__file__).parents[1] / "recordings" / "stacks"
SITE = "/opt/envs/tf/lib/python3.11/site-packages"


def recorded(name: str) -> str:
    return (RECORDINGS / f"{name}.txt").read_text()


def place(*dumps: str) -> tuple[str, ...]:
    return incident_name.stall_place(stacks.common([stacks.parse(text) for text in dumps]))


def name(text: str, cause: str = "device-wait", phase: str = "step") -> str:
    return incident_name.name(cause, phase, place(text))


@pytest.mark.parametrize("kind", ["generator", "op", "sequence"])
def test_the_name_does_not_depend_on_the_version_of_the_framework(kind: str) -> None:
    assert name(recorded(f"{kind}-tf2.15")) == name(recorded(f"{kind}-tf2.21"))


def test_the_name_does_not_depend_on_the_version_of_python() -> None:
    assert len({name(recorded(f"plain-python3.{minor}")) for minor in (9, 10, 11, 12, 13)}) == 1


def test_different_hangs_of_one_script_have_different_names() -> None:
    kinds = ("callback", "eager", "generator", "op", "pyfunc", "sequence", "importing", "exit-python3.11")
    texts = [recorded(kind if "-" in kind else f"{kind}-tf2.21") for kind in kinds]
    assert len({name(text) for text in texts}) == len(kinds)


def test_another_machine_another_line_and_another_order_of_threads_change_nothing() -> None:
    text = recorded("generator-tf2.21")
    elsewhere = text.replace("/env/", "/Users/eve/venvs/metal/").replace("/home/ada/project/", "/Volumes/x/")
    elsewhere = elsewhere.replace("/usr/local/lib/", "/opt/homebrew/Frameworks/lib/").replace(
        "python3.11", "python3.12"
    )
    elsewhere = re.sub(r"0x[0-9a-f]{16}", "0x00000001f0a3c8c0", elsewhere)
    elsewhere = re.sub(r"line \d+", "line 7", elsewhere)
    blocks = re.split(r"(?=^Thread )", elsewhere, flags=re.MULTILINE)
    extra = 'Thread 0x0000000000000001 (most recent call first):\n  File "/x/lib/python3.12/queue.py", line 1 in get\n'

    assert name(elsewhere) == name(extra + elsewhere) == name(text)
    assert place("".join(reversed(blocks))) == place(text) or len(blocks) == 2


def test_another_function_another_cause_and_another_phase_have_another_name() -> None:
    text = recorded("callback-tf2.21")
    assert name(text) != name(text.replace("on_train_batch_end", "on_epoch_end"))
    assert name(text) != name(text, cause="busy-loop")
    assert name(text) == name(text, cause="host-deadlock"), (
        "which kind of idle wait it is can depend on other load"
    )
    assert name(text) != name(text, phase="validation")


def dump(*calls: str, file: str = "/home/ada/train.py") -> str:
    frames = "".join(f'  File "{file}", line 3 in {call}\n' for call in calls)
    return f"Current thread 0x0000000000000009 (most recent call first):\n{frames}"


def test_a_comprehension_and_the_numbers_of_a_notebook_are_no_part_of_the_name() -> None:
    assert name(dump("load", "<listcomp>", "<module>")) == name(dump("load", "<module>"))
    cell = dump("load", "<module>", file="/tmp/ipykernel_812/4146.py")
    assert name(cell) == name(dump("load", "<module>", file="/tmp/ipykernel_99/77.py"))
    assert name(dump("block_1", "<module>")) != name(dump("block_2", "<module>"))


def test_the_function_of_the_library_that_the_script_called_is_a_part_of_the_name() -> None:
    def inside(*calls: str) -> str:
        library = "".join(f'  File "{SITE}/keras/src/trainer.py", line 9 in {call}\n' for call in calls)
        return dump().replace("first):\n", f"first):\n{library}") + '  File "/x/t.py", line 1 in <module>\n'

    assert name(inside("_step", "fit", "error_handler")) == name(
        inside("_other", "_inner", "fit", "error_handler")
    )
    assert name(inside("_step", "fit")) != name(inside("_step", "predict"))


def test_a_loop_that_moves_has_the_place_of_the_loop() -> None:
    dumps = [
        dump("draw", "search", "<module>"),
        dump("fits", "search", "<module>"),
        dump("search", "<module>"),
    ]
    assert place(*dumps) == place(*reversed(dumps)) == place(dump("search", "<module>"))


def test_a_dump_that_was_cut_off_does_not_shorten_the_place() -> None:
    whole = dump("draw", "search", "<module>")
    assert place(whole, dump("draw"), "") == place(whole)


def test_what_stopped_the_process_by_chance_has_no_place_in_the_code() -> None:
    by_chance = incident_name.end_place((), "", "")
    assert incident_name.name("stopped", "step", by_chance) == incident_name.name(
        "stopped", "idle", by_chance
    )
    assert incident_name.name("stopped", "step", by_chance).startswith("stopped-")


def test_an_end_is_named_by_its_most_significant_line_its_signal_and_its_exception() -> None:
    def end(*printed: str, how: str = "killed by SIGABRT", exception: str = "") -> tuple[str, ...]:
        return incident_name.end_place(printed, how, exception)

    assert end("iogpu_oom", "libcxxabi", "metal_device") == end("metal_device", "iogpu_oom")
    assert len({end(), end("iogpu_oom"), end("iogpu_hang"), end(how="exit code 1")}) == 4
    error = "keras.errors.ShapeError: expected 32 rows, found 31"
    assert end(exception=error) == end(exception="ShapeError: expected 64 rows, found 3")
    assert end(exception=error) != end(exception="ValueError")


def test_no_stacks_have_no_place() -> None:
    assert place("") == place() == ()

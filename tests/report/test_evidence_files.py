"""Stacks are told in a few lines: the script's own calls, the libraries by name, threads alike as one."""

from __future__ import annotations

from stallguard.collectors.stacks import parse
from stallguard.report.evidence_files import fold, similarity

SITE = "/opt/envs/tf/lib/python3.11/site-packages"
MAIN = f"""\
Current thread 0x0000000000000009 (most recent call first):
  File "{SITE}/tensorflow/python/eager/execute.py", line 53 in quick_execute
  File "{SITE}/keras/src/trainers/trainer.py", line 241 in function
  File "{SITE}/keras/src/trainers/trainer.py", line 399 in fit
  File "/opt/stallguard/probe/hooks.py", line 58 in hooked
  File "/home/me/train.py", line 12 in main
  File "/home/me/train.py", line 20 in <module>
"""


def thread(number: int, *calls: str, file: str = f"{SITE}/pool/work.py") -> str:
    frames = "".join(f'  File "{file}", line {number} in {call}\n' for call in calls)
    return f"Thread 0x{number:016x} (most recent call first):\n{frames}\n"


def test_the_main_thread_comes_first_with_the_scripts_own_lines_apart():
    [main] = fold(MAIN, "/home/me")

    assert (main.main, main.kind) == (True, "tf_wait")
    assert [(part.package, len(part.frames)) for part in main.segments] == [
        ("tensorflow", 1), ("keras", 2), ("stallguard", 1), ("", 2),
    ]  # fmt: skip
    assert main.segments[-1].frames == ("train.py:12 in main", "train.py:20")
    assert main.segments[0].frames == ("tensorflow/python/eager/execute.py:53 in quick_execute",)


def test_threads_alike_are_one_whatever_line_they_are_at():
    text = thread(1, *"abcde") + thread(2, *"abcde") + thread(3, *"abcdx") + thread(4, *"vwxyz") + MAIN

    groups = fold(text)

    assert [len(group.threads) for group in groups] == [1, 3, 1]


def test_no_thread_joins_the_main_thread():
    twin = MAIN.replace("Current thread 0x0000000000000009", "Thread 0x0000000000000008")

    assert [group.main for group in fold(twin + "\n" + MAIN)] == [True, False]


def test_our_own_threads_are_not_reported():
    ours = thread(5, "_run", file="/opt/stallguard/probe/sender.py")

    asks = (
        f'  File "{SITE}/keras/src/optimizer.py", line 3 in iterations\n'
        '  File "/opt/stallguard/probe/poll.py", line 91 in _run\n'
        '  File "/usr/lib/python3.11/threading.py", line 975 in run\n'
    )
    polls = f"Thread 0x0000000000000006 (most recent call first):\n{asks}\n"

    assert len(fold(ours + polls + MAIN)) == 1


def test_alike_means_the_same_calls():
    one, other, none = parse(thread(1, *"abcd") + thread(2, *"abxy") + thread(3))

    assert similarity(one, one) == 1.0
    assert similarity(one, other) == 0.5
    assert similarity(one, none) == 0.0


def test_a_dump_that_is_none_gives_no_stack():
    assert fold("Segmentation fault") == []

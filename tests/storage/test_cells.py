"""A notebook's cells have their numbers in stacks; what is not known keeps its path."""

from __future__ import annotations

import pytest

from stallguard.storage import cells

DUMP = """Current thread 0x00007f1ebd2f76c0 (most recent call first):
  File "/tmp/ipykernel_7/11.py", line 7 in step
  File "/tmp/ipykernel_7/12.py", line 2 in <module>
  File "/tmp/ipykernel_7/11.py.txt", line 3 in more
"""


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "7.cells").write_text("2\t/tmp/ipykernel_7/11.py\n3\t/tmp/ipykernel_7/13.py\n")
    return tmp_path


def test_the_file_of_a_cell_gets_its_number_and_no_other_file_does(pages):
    named = cells.named(DUMP, pages, 7)
    assert 'File "cell 2", line 7 in step' in named
    assert 'File "/tmp/ipykernel_7/12.py", line 2' in named
    assert 'File "/tmp/ipykernel_7/11.py.txt", line 3' in named


def test_the_stacks_of_another_process_are_left_as_they_are(pages):
    assert cells.named(DUMP, pages, 8) == DUMP


def test_a_cell_that_was_executed_again_has_its_newest_number(pages):
    with (pages / "7.cells").open("a") as file:
        file.write("5\t/tmp/ipykernel_7/11.py\n")
    assert cells.of(pages, 7)["/tmp/ipykernel_7/11.py"] == "cell 5"


@pytest.mark.parametrize("line", ["0\t/tmp/ipykernel_7/11.py", "x\t/tmp/ipykernel_7/11.py", "\t/tmp/ipykernel_7/11.py"])
def test_a_name_that_two_cells_have_is_no_cell_any_more(pages, line):
    with (pages / "7.cells").open("a") as file:
        file.write(line + "\n")
    assert cells.of(pages, 7) == {"/tmp/ipykernel_7/13.py": "cell 3"}

"""The jobs of a sweep file: numbers, values and order depend on the file alone."""

from __future__ import annotations

import pytest

from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.jobs import submitting

BASE = """
name = "rates"
command = ["train.py", "--out", "runs/{rate}-{rows}"]
{more}
[parameters]
rate = [0.1, 0.01]
rows = [32, 64, 128]
"""


def jobs(more="", text=BASE):
    return submitting.jobs_of_sweep(text.replace("{more}", more), "sweep.toml")


def values(found):
    return [job.words[2].removeprefix("runs/") for job in found]


def test_a_grid_has_each_combination_in_the_order_of_the_file():
    found = jobs()
    assert [job.job for job in found] == [f"rates-{number:03}" for number in range(1, 7)]
    assert values(found) == ["0.1-32", "0.1-64", "0.1-128", "0.01-32", "0.01-64", "0.01-128"]
    assert found[0].words == ("train.py", "--out", "runs/0.1-32")
    assert {job.sweep for job in found} == {"rates"}


def test_a_parameter_that_is_in_no_word_becomes_an_option():
    text = 'name = "a"\ncommand = ["t.py", "{rate}"]\n[parameters]\nrate = [1]\nrows = [2]\ndeep = [true]\n'
    text += 'kind = ["x y"]\n'
    assert jobs(text=text)[0].words == ("t.py", "1", "--rows", "2", "--deep", "true", "--kind", "x y")


def test_a_value_with_braces_is_taken_as_it_is_if_no_parameter_has_that_name():
    text = 'name = "a"\ncommand = ["t.py", "{other}", "{rate}"]\n[parameters]\nrate = ["{x}"]\n'
    assert jobs(text=text)[0].words == ("t.py", "{other}", "{x}")


def test_a_value_that_looks_like_a_placeholder_is_not_replaced_again():
    text = 'name = "a"\ncommand = ["t.py", "{a}", "{b}"]\n[parameters]\na = ["{b}"]\nb = ["2"]\n'
    assert jobs(text=text)[0].words == ("t.py", "{b}", "2")


def test_a_list_takes_the_first_values_then_the_second():
    text = BASE.replace("[32, 64, 128]", "[32, 64]")
    assert values(jobs('method = "list"', text)) == ["0.1-32", "0.01-64"]


def test_a_random_sweep_takes_different_combinations_that_its_seed_decides():
    chosen = values(jobs('method = "random"\nruns = 4\nseed = 7'))
    assert chosen == values(jobs('method = "random"\nruns = 4\nseed = 7'))
    assert len(set(chosen)) == 4
    assert set(chosen) < set(values(jobs()))
    others = {tuple(values(jobs(f'method = "random"\nruns = 4\nseed = {seed}'))) for seed in range(10)}
    assert len(others) > 1


def test_a_random_sweep_of_more_than_all_combinations_has_each_once():
    chosen = values(jobs('method = "random"\nruns = 100'))
    assert sorted(chosen) == sorted(values(jobs()))


def test_a_random_sweep_of_a_huge_grid_takes_its_few_at_once():
    parameters = "\n".join(f"p{number} = {list(range(100))}" for number in range(9))
    text = f'name = "a"\ncommand = ["t.py"]\nmethod = "random"\nruns = 3\n[parameters]\n{parameters}\n'
    assert len(jobs(text=text)) == 3


def test_needs_priority_options_and_environment_are_those_of_each_job():
    more = 'needs = ["metal", "memory=32GB"]\npriority = 3\n'
    more += 'options = ["--max-restarts", "2"]\nenvironment = { A = "b" }'
    for job in jobs(more):
        assert job.needs == {"metal": 1.0, "memory": 32.0}
        assert (job.priority, job.options, job.environment) == (3, ("--max-restarts", "2"), {"A": "b"})


def test_numbers_have_as_many_digits_as_the_last():
    text = f'name = "a"\ncommand = ["t.py"]\n[parameters]\nx = {list(range(1200))}\n'
    found = jobs(text=text)
    assert (found[0].job, found[-1].job) == ("a-0001", "a-1200")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("rates", "a b"), "name = 'a b'"),
        (('["train.py", "--out", "runs/{rate}-{rows}"]', "[]"), "command is empty"),
        (("{more}", 'method = "best"'), "grid, list or random"),
        (("{more}", 'method = "random"'), "runs = 0"),
        (("{more}", 'method = "random"\nruns = 99999'), "1 to 10000"),
        (("{more}", 'method = "list"'), "as many values of each parameter; here: [2, 3]"),
        (("[0.1, 0.01]", "[]"), "the parameter rate has no values"),
        (("rate = [0.1, 0.01]\nrows = [32, 64, 128]", ""), "there are no parameters"),
        (("{more}", "colour = 1"), "colour"),
        (("[0.1, 0.01]", "0.1"), "parameters"),
        (("[32, 64, 128]", str(list(range(9999)))), "19998 combinations"),
        (("[parameters]", "[parameters"), "line"),
    ],
)
def test_a_file_that_is_no_sweep_says_why(change, says):
    with pytest.raises(StallguardError) as error:
        jobs(text=BASE.replace(*change))
    assert error.value.code == USAGE
    assert says in "\n".join(error.value.lines())
    assert "sweep.toml is not a sweep" in error.value.lines()[0]


def test_what_no_machine_can_offer_is_refused_before_anything_is_submitted():
    with pytest.raises(StallguardError, match="gpu"):
        jobs('needs = ["gpu"]')

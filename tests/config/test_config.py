"""Settings from flags, environment, files and defaults, each with its origin."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard import config
from stallguard.config.table import REMOVED, all_keys, value_of
from stallguard.errors import USAGE, StallguardError


@pytest.fixture
def home(tmp_path):
    """An empty home with a project directory in it."""
    (tmp_path / "project" / "deep").mkdir(parents=True)
    return tmp_path


def env(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home)} | more


def load(home: Path, flags=None, where: str = "project/deep", **more: str) -> config.Loaded:
    return config.load(flags or {}, env(home, **more), home / where)


def user(home: Path, text: str) -> Path:
    path = home / ".config" / "stallguard" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def refused(home: Path, **more) -> StallguardError:
    with pytest.raises(StallguardError) as caught:
        load(home, **more)
    assert caught.value.code == USAGE
    return caught.value


def test_without_any_file_the_defaults_hold(home):
    loaded = load(home)

    assert loaded.config == config.Config()
    assert set(loaded.origins.values()) == {"default"}


def test_each_layer_yields_to_the_one_before_it(home):
    user(home, "[stop]\ngrace = '1s'\nbatch_wait = '1s'\nsaving_wait = '1s'\n[keep]\nruns = 1\n")
    project = home / "project" / "stallguard.toml"
    project.write_text("[stop]\ngrace = '2s'\nbatch_wait = '2s'\nsaving_wait = '2s'\n")

    loaded = load(home, {"stop.grace": "4s"}, STALLGUARD_STOP__GRACE="3s", STALLGUARD_STOP__BATCH_WAIT="3s")

    stop = loaded.config.stop
    assert (stop.grace, stop.batch_wait, stop.saving_wait, loaded.config.keep.runs) == (4.0, 3.0, 2.0, 1)
    assert loaded.origins["stop.grace"] == "option --grace"
    assert loaded.origins["stop.batch_wait"] == "environment STALLGUARD_STOP__BATCH_WAIT"
    assert loaded.origins["stop.saving_wait"] == f"{project}:4"
    assert loaded.origins["keep.runs"].endswith("config.toml:6")


def test_an_option_that_was_not_given_changes_nothing(home):
    assert load(home, {"stop.grace": None}).origins["stop.grace"] == "default"


def test_the_nearest_project_file_is_taken_alone(home):
    (home / "stallguard.toml").write_text("stop.grace = 1\n")
    (home / "project" / "pyproject.toml").write_text("[tool.stallguard.stop]\nbatch_wait = 2\n")

    loaded = load(home)

    assert loaded.config.stop.batch_wait == 2.0
    assert loaded.origins["stop.batch_wait"].endswith("pyproject.toml:2")
    assert loaded.origins["stop.grace"] == "default"


def test_a_pyproject_of_others_is_passed_by_even_when_broken(home):
    (home / "stallguard.toml").write_text("stop.grace = 1\n")
    (home / "project" / "pyproject.toml").write_text("[project\nbroken")

    assert load(home).config.stop.grace == 1.0


def test_xdg_config_home_moves_the_users_file(home):
    (home / "elsewhere" / "stallguard").mkdir(parents=True)
    (home / "elsewhere" / "stallguard" / "config.toml").write_text("keep.runs = 7")

    assert load(home, XDG_CONFIG_HOME=str(home / "elsewhere")).config.keep.runs == 7


def test_a_relative_place_of_settings_is_none(home, monkeypatch):
    (home / "elsewhere" / "stallguard").mkdir(parents=True)
    (home / "elsewhere" / "stallguard" / "config.toml").write_text("keep.runs = 7\n")
    monkeypatch.chdir(home)
    assert load(home, XDG_CONFIG_HOME="elsewhere").config.keep.runs != 7


def test_a_setting_that_was_removed_is_said_and_does_nothing_wherever_it_is_set(home):
    (home / "stallguard.toml").write_text("[policy]\nregrow_after = 60\n")

    loaded = load(home, {"policy.regrow": True}, STALLGUARD_POLICY__REGROW="1")

    assert loaded.config == config.Config()
    said = [text.partition(" has no effect any more: ")[0] for text in loaded.ignored]
    assert said == [
        f"policy.regrow_after ({home / 'stallguard.toml'}:2)",
        "policy.regrow (environment STALLGUARD_POLICY__REGROW)",
        "policy.regrow (option --set policy.regrow)",
    ]


@pytest.mark.parametrize("path", REMOVED)
def test_each_removed_setting_is_none_and_says_what_holds_instead(home, path):
    assert path not in all_keys()
    loaded = load(home, {path: "5"})
    assert loaded.config == config.Config()
    assert loaded.ignored == (f"{path} (option --set {path}) has no effect any more: {REMOVED[path][1]}",)


def test_variables_of_the_probe_are_no_settings(home):
    loaded = load(home, STALLGUARD_SOCKET="/tmp/s", STALLGUARD_FACTOR="2", STALLGUARD_HOME="/x")

    assert loaded.config == config.Config()


def test_one_row_of_the_detector_can_be_tuned(home):
    (home / "project" / "stallguard.toml").write_text("[detector.rows.step]\ndeadlock = '15s'\n")

    rows = load(home, STALLGUARD_DETECTOR__ROWS__SAVE__WORKING="20m").config.detector.rows

    assert (rows.step.deadlock, rows.save.working) == (15.0, 1200.0)
    assert rows.epoch_first_step == config.Config().detector.rows.epoch_first_step


@pytest.mark.parametrize(
    ("text", "near"),
    [("[stop]\ngrase = 3", "stop.grace"), ("[stopp]\ngrace = 3", "stop.grace"), ("grace = 3", "stop.grace"),
     ("[detector.rows.stap]\ndeadlock = 3", "detector.rows.step.deadlock")],
)  # fmt: skip
def test_an_unknown_setting_is_refused_with_the_nearest_name(home, text, near):
    (home / "project" / "stallguard.toml").write_text(text)

    error = refused(home)

    assert near in error.why
    assert "stallguard.toml" in error.what


def test_an_unknown_variable_or_flag_is_refused_as_well(home):
    assert "stop.grace" in refused(home, STALLGUARD_STOP__GRASE="3").why
    assert "option --set stop.grase" in refused(home, flags={"stop.grase": "3"}).what


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stop.grace = 'soon'", ("stop.grace", "'soon'", "stallguard.toml:1", "90s, 5m, 8h")),
        ("stop.grace = -1", ("-1", "a duration")),
        ("stop.grace = true", ("True", "a duration")),
        ("stop.grace = inf", ("inf", "a duration")),
        ("\n[keep]\nruns = 0", ("keep.runs", "stallguard.toml:3", "1 or more")),
        ("keep.runs = 1.5", ("whole number",)),
        ("keep.size = 'big'", ("a size: 20MB",)),
        ("detector.patience = 0", ("detector.patience", "0.25 or more")),
        ("detector.patience = 0.2", ("0.25 or more",)),
        ("detector.most_health = 0.5", ("1 or more",)),
        ("detector.half_life = 0", ("1 or more",)),
        ("output.quiet = 3", ("on or off",)),
        ("output.color = 'red'", ("one of auto, always, never",)),
        ("notify.on = ['stall', 'dinner']", ("stall, restart",)),
        ("run.stop_at = '25:00'", ("07:30",)),
        ("stop = 3", ("section",)),
        ("stop.grace = {a = 1}", ("no setting stop.grace.a",)),
        ("[stoop]", ("no setting stoop", "stallguard.toml")),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_in_one_clear_sentence(home, text, words):
    (home / "project" / "stallguard.toml").write_text(text)

    error = refused(home)

    said = f"{error.what} {error.why}"
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"policy.batch_flag": "--batch"}, ("policy.batch_flag", "made smaller")),
        ({"policy.batch_env": "BATCH"}, ("policy.batch_env",)),
        ({"policy.batch": "512"}, ("policy.batch",)),
        ({"policy.really_smaller_batch": True}, ("policy.really_smaller_batch", "either trained in slices or")),
        ({"run.probe": False}, ("run.probe", "the probe")),
    ],
)
def test_slices_and_what_makes_them_impossible_contradict_each_other(home, other, words):
    error = refused(home, flags={"policy.microbatches": "4", **other})

    said = f"{error.what} {error.why} {error.cure}"
    assert all(word in said for word in ("policy.microbatches", "option --", *words)), said
    assert load(home, {"policy.microbatches": "1", **other}).config.policy.microbatches == 1


def test_a_file_that_is_not_toml_is_named_with_its_line(home):
    path = home / "project" / "stallguard.toml"
    path.write_text("[stop]\ngrace = \n")
    assert (str(path) in refused(home).what, "line 2" in refused(home).why) == (True, True)
    path.write_bytes(b"\xff\xfe")
    assert "TOML is UTF-8, and the file is not" in refused(home).why


def test_a_directory_in_place_of_the_users_file_is_named(home):
    (home / ".config" / "stallguard" / "config.toml").mkdir(parents=True)
    assert "config.toml" in refused(home).what


@pytest.mark.parametrize("key", all_keys().values(), ids=lambda key: key.path)
def test_what_show_prints_can_be_written_back(home, key):
    """The default of every setting, as shown, is read back as the same value."""
    shown = key.kind.show(key.default).removeprefix("-")
    loaded = load(home, {key.path: shown})
    assert value_of(loaded.config, key.path) == key.default


def test_the_table_names_every_setting_and_no_other():
    def leaves(value, path=""):
        if isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                yield from leaves(getattr(value, name), f"{path}.{name}" if path else name)
        else:
            yield path

    assert sorted(leaves(config.Config())) == sorted(all_keys())


def test_set_takes_pairs_and_refuses_the_rest():
    assert config.parse_set(["detector.cap=90s", " a.b = c=d "]) == {"detector.cap": "90s", "a.b": "c=d"}
    with pytest.raises(StallguardError):
        config.parse_set(["detector.cap"])


def test_changes_are_parted_into_those_a_live_run_takes_and_those_it_cannot(home):
    before = load(home)
    after = load(home, {"stop.grace": "20s", "run.python": "/usr/bin/python3"})

    taken, refusals = config.changes(before, after)
    now = config.accepted(before, after)

    assert ([key.path for key in taken], [key.path for key in refusals]) == (["stop.grace"], ["run.python"])
    assert (now.config.stop.grace, now.config.run.python) == (20.0, "")
    assert now.origins["stop.grace"] == "option --grace"
    assert now.origins["run.python"] == "default"


def test_the_core_gets_its_limits(home):
    limits = load(home, {"run.observe": True, "stop.grace": "3s"}).config.limits()

    assert (limits.observe, limits.stop.grace) == (True, 3.0)


RAW = st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers()))


@given(path=st.sampled_from(sorted(all_keys())), raw=RAW)
def test_no_value_brings_anything_but_a_clear_error(path, raw):
    with contextlib.suppress(StallguardError):
        config.load({path: raw}, {"HOME": "/nowhere"}, Path("/"))

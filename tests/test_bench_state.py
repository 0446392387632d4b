"""The bench of state: its catalog is whole, its cases cover it, it tells the same from the silent."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from stateful import judge
from stateful.cases import DATA, PLACES, PLACES_OF, WITHOUT_FUNCTION, Case, drawn, parsed
from stateful.children import Children
from stateful.loops import LOOPS
from stateful.script import written
from stateful.things import catalog

ROOT = Path(__file__).parents[1]
BENCHES = ROOT / "scripts" / "benches"
# In a copy of the probe: what a callback holds as `held` is in no checkpoint.
DEFECT = """
_keep = keep


def keep(walked, paths, *more, **named):
    return _keep(walked, [path for path in paths if ".held" not in path], *more, **named)
"""
KINDS = """
    list dict set collections.deque collections.Counter collections.OrderedDict collections.defaultdict
    collections.ChainMap collections.UserDict collections.UserList collections.UserString collections.namedtuple
    array.array io.StringIO io.BytesIO io.TextIOWrapper hashlib.sha256 random.Random secrets itertools.count
    itertools.cycle contextvars.ContextVar threading.local logging.Handler sqlite3-memory sqlite3-file
    weakref.WeakValueDictionary functools.lru_cache dataclass-slots generator memoryview ctypes.Structure
    multiprocessing.Value np.ma.MaskedArray np.recarray np.ndarray-object np.Generator np.memmap pd.DataFrame
    pl.DataFrame scipy.csr_array sklearn.StandardScaler PIL.Image h5py.File-w pydantic.BaseModel attrs.define
    tf.MutableHashTable tf.random.Generator tf.TensorArray tf.RaggedTensor tf.SparseTensor tf.Variable-list
    torch.Generator torch.optim.Adam jax.Array jax.random.key
"""


class TestCatalog:
    def test_there_are_enough_things_of_each_kind(self):
        assert len(catalog()) >= 150
        assert set(KINDS.split()) <= set(catalog())

    def test_no_two_things_give_one_name_to_different_classes(self):
        texts = {}
        for thing in catalog().values():
            for node in ast.parse(thing.setup).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    texts.setdefault(node.name, set()).add(ast.unparse(node))
        assert [name for name, found in texts.items() if len(found) > 1] == []

    @pytest.mark.costly
    def test_each_is_python_at_each_place(self):
        for number, name in enumerate(catalog()):
            place, data = PLACES[number % len(PLACES)], DATA["tensorflow"][2 + number % 4]
            compile(written(Case("tensorflow", 2, 3, data, number, ((name, place),), ())), name, "exec")

    @pytest.mark.parametrize("loop", LOOPS)
    def test_a_script_of_each_loop_has_the_thing_at_each_place_and_no_keras(self, loop):
        for number, place in enumerate(PLACES_OF[loop]):
            data = DATA[loop][2 + number % 2]
            text = written(Case(loop, 2, 3, data, 1, (("list", place), ("int", place)), ()))
            compile(text, place, "exec")
            assert "keras" not in text
            assert text.count("make_0()") >= 2  # its function, and its place
            assert text.count('state.result", "0"') == (place != "pipeline")


class TestCases:
    def test_a_spec_is_the_case(self):
        cases = list(drawn("torch", catalog(), 50, 1))
        assert [parsed(case.spec()) for case in cases] == cases
        assert list(drawn("torch", catalog(), 50, 1)) == cases != list(drawn("torch", catalog(), 50, 2))

    def test_each_thing_is_at_each_place_alone_before_several_are_together(self):
        things = dict(list(catalog().items())[:5])
        cases = list(drawn("tensorflow", things, 90, 1))
        alone, together = cases[: 5 * len(PLACES)], cases[5 * len(PLACES) :]
        assert len({case.things[0] for case in alone}) == 5 * len(PLACES)
        assert {len(case.things) for case in alone} == {1}
        counted = Counter(pair for case in together for pair in case.things)
        assert max(counted.values()) - min(counted.values()) <= 2

    def test_what_is_in_a_pipeline_has_data_with_a_function(self):
        cases = [case for case in drawn("torch", catalog(), 200, 1) if "@pipeline" in case.spec()]
        assert cases
        assert not [case for case in cases if case.data in WITHOUT_FUNCTION]


def attempt(code=0, results=None, said=(), past=(), err=""):
    return {"code": code, "results": results or {}, "said": list(said), "past": list(past), "err": err}


def verdict(reference, *attempts, things="list@callback", **more):
    spec = f"torch/2x3/arrays/1/{things}/batch0.5"
    return judge.judged({"spec": spec, "reference": reference, "attempts": list(attempts), **more})


class TestVerdicts:
    KILLED = attempt(-9)
    PLAIN = attempt(results={"0": "a", "weights": "w"})
    OTHER = attempt(results={"0": "b", "weights": "v"})

    def test_equal_results_are_the_same(self):
        assert verdict(self.PLAIN, self.KILLED, self.PLAIN).kind == "same"

    def test_other_results_without_a_word_are_silent_and_name_the_thing(self):
        found = verdict(self.PLAIN, self.KILLED, self.OTHER)
        assert (found.kind, found.things) == ("SILENT", (("list", "callback"),))

    def test_a_result_that_is_missing_is_silent(self):
        assert verdict(self.PLAIN, self.KILLED, attempt(results={"0": "a"})).kind == "SILENT"

    def test_a_word_that_a_resume_is_not_exact_counts(self):
        last = attempt(results=self.OTHER["results"], said=[["inexact", "the order differs"]])
        assert verdict(self.PLAIN, self.KILLED, last).kind == "said"

    def test_what_starts_over_must_end_the_same(self):
        said = [["inexact", "fit 1 starts over: its checkpoint is not used, because ..."]]
        assert verdict(self.PLAIN, self.KILLED, attempt(results=self.OTHER["results"], said=said)).kind == "OVER"
        assert verdict(self.PLAIN, self.KILLED, attempt(results=self.PLAIN["results"], said=said)).kind == "same"

    def test_a_word_on_another_object_does_not_count(self):
        lost = "a resume cannot restore the state of these objects, if it changes: callbacks[0].%s (Thing)"
        for name, kind in (("held", "said"), ("other", "SILENT")):
            last = attempt(results=self.OTHER["results"], said=[["beyond", lost % name]])
            assert verdict(self.PLAIN, self.KILLED, last).kind == kind

    def test_where_the_training_goes_on_is_no_word_that_it_differs(self):
        said = [["resume", "resuming from the 21:56 checkpoint (epoch 2, batch 3)"]]
        found = verdict(self.PLAIN, self.KILLED, attempt(results=self.OTHER["results"], said=said))
        assert (found.kind, found.resumed) == ("SILENT", True)

    def test_what_a_tracked_loop_refuses_is_said(self):
        refused = attempt(1, err="Traceback\nTypeError: stallguard.track cannot keep object 3, of type dict: no")
        assert verdict(self.PLAIN, refused).kind == "said"

    def test_a_step_at_which_trainer_goes_on_is_no_word_that_it_differs(self):
        said = [["resume", "Trainer goes on from step 3, with stallguard's checkpoint g3"]]
        found = verdict(self.PLAIN, self.KILLED, attempt(results=self.OTHER["results"], said=said))
        assert (found.kind, found.resumed) == ("SILENT", True)

    def test_two_undisturbed_runs_that_differ_prove_nothing(self):
        found = verdict(self.PLAIN, self.KILLED, self.OTHER, again=attempt(results={"0": "c", "weights": "w"}))
        assert found.kind == "unsteady"

    def test_an_error_that_only_the_resumed_run_has_is_a_crash(self):
        failed = attempt(1, err="Traceback\nValueError: no")
        assert verdict(self.PLAIN, self.KILLED, failed).kind == "CRASH"
        assert verdict(self.PLAIN, self.KILLED, failed, restarted=failed).kind == "own"
        assert verdict(self.PLAIN, self.KILLED, attempt(None)).kind == "CRASH"
        assert verdict(failed).kind == "unfit"

    def test_random_values_from_before_the_kill_must_still_be_there(self):
        first = attempt(-9, past=[["0", ["a"]], ["0", ["a", "b"]]])
        same = attempt(results=self.PLAIN["results"], past=[["0", ["a", "b", "c"]]])
        lost = attempt(results=self.PLAIN["results"], past=[["0", ["x", "b", "c"]]])
        again = attempt(results=self.PLAIN["results"], past=[["0", ["x"]]])
        kinds = [verdict(self.PLAIN, first, one, things="secrets@callback").kind for one in (same, lost, again)]
        assert kinds == ["same", "SILENT", "same"]


class TestRuns:
    """Real trainings, killed and resumed, by a process that has imported Keras."""

    SPECS = (
        "tensorflow/2x4/arrays/1/list@callback,collections.deque@global,np.Generator@closure/batch0.600",
        "tensorflow/2x4/pydataset/2/dict@callback,int@layer/save0.500,batch0.300",
    )

    def run(self, monkeypatch, tmp_path, probe):
        monkeypatch.setenv("STATE_PROBE", str(probe))
        found = []
        cases = [parsed(spec) for spec in self.SPECS]
        with Children("tensorflow", 1, cases=cases) as children:
            children.run(cases, lambda verdict, _: found.append(verdict))
        return found

    @pytest.mark.tf
    def test_a_resumed_training_is_the_same_and_a_lost_value_is_silent(self, monkeypatch, tmp_path):
        probe = ROOT / "stallguard" / "probe"
        found = self.run(monkeypatch, tmp_path, probe)
        assert [(one.kind, one.resumed) for one in found] == [("same", True), ("same", True)]

        copy = tmp_path / "stallguard" / "probe"
        shutil.copytree(probe, copy)
        with (copy / "checkpoint" / "object_state.py").open("a") as file:
            file.write(DEFECT)
        found = self.run(monkeypatch, tmp_path, copy)
        assert [one.kind for one in found] == ["SILENT", "SILENT"]
        assert ("list", "callback") in found[0].things

    @pytest.mark.tf
    def test_the_bench_prints_its_verdict_and_fails_for_no_case(self):
        command = [sys.executable, str(BENCHES / "state.py"), "--processes", "1", "--case", self.SPECS[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"same: {self.SPECS[0]}" in done.stdout
        assert done.stdout.endswith("all 4 goals hold\n")

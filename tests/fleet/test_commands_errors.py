"""What a user meets when something is wrong with a fleet: one clear error, in limited time, and nothing is lost."""

from __future__ import annotations

import datetime as dt
import os

import pytest
from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN
from stallguard.fleet.machines import founding
from stallguard.fleet.store import membership, orders, records
from stallguard.fleet.store.orders import Stop
from stallguard.fleet.store.records import Claim, Generation, Holder
from tests.fleet.lab import ASKING, CHILDREN, LISTS, ROOT, card, make, submission
from tests.fleet.members import signs

pytestmark = pytest.mark.live

DAMAGED = {
    "submission": (
        "jobs/j/submission/content",
        ("status", "j"),
        "its submission is refused: it is not a signed record",
    ),
    "card": ("workers/mini", ("fleet", "machines"), "its card cannot be used"),
    "cordon": ("cordons/mini", ("fleet", "machines"), "stallguard fleet uncordon mini removes it"),
    "refusal": ("jobs/j/refusals/mini", ("status", "j"), "mini can take it"),
    "stop": ("jobs/j/stop", ("status", "j"), "an order to stop it is refused: it is not a signed record"),
    "index": ("jobs/k/runs/1/index", ("logs", "k"), "cannot be used"),
    "log": ("jobs/k/log/{2}/content", ("status", "k"), "slot 2 of its log, its newest checkpoint, cannot be read"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_record_that_is_damaged_is_named_and_the_others_are_read(lab, what):
    lab.verb("fleet", "submit", "--name", "j", "t.py", code=0)
    for host in ("mini", "pro"):
        card(lab, host)
    store = lab.store
    holder = Holder(host="mini", boot="b", pid=1, nonce="n")
    store.create(records.slot_key("k", 1), records.encode(Claim(number=1, holder=holder)))
    made = Generation(number=1, claim=1, run="r", files=())
    store.create(records.slot_key("k", 2), records.encode(made))
    store.create(records.slot_key("k", 3), records.encode(replace(made, newest=2)))
    store.create(records.slot_key("k", 4), records.encode(Claim(number=2, newest=2, holder=holder)))
    place, ask, text = DAMAGED[what]
    damaged = store.folder / place.replace("{2}", records.slot_key("k", 2).rpartition("/")[2])
    if what == "index":
        ask = ("logs", "k/1")
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(b"\xff\0garbage")
    assert text in " ".join(lab.verb(*ask).split())
    listed = {line.split()[0] for line in lab.verb("ls", code=0).splitlines()}
    assert {"j", "k"} <= listed
    assert "pro" in lab.verb("fleet", "machines", code=0)
    assert lab.verb("report", "--fleet", "--html", str(lab.place / "page.html"), code=0)
    if what == "log":  # it neither starts over nor overlooks a holder
        assert "put it back from a backup" in lab.refused("run", "--store", "{store}", "--job", "k", "t.py")


def test_code_that_is_damaged_is_never_run(lab):
    lab.verb("fleet", "submit", "--name", "j", "t.py", code=0)
    [code] = (lab.store.folder / "code").iterdir()
    code.write_bytes(b"other code")
    said = lab.verb("fleet", "job", "j", code=CANNOT_RUN)
    assert "does not match its digest" in said
    assert "under another name" in said
    card(lab, lab.member.name)
    assert "refuses it (the packed project does not match" in " ".join(lab.verb("status", "j").split())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: file.chmod(0o644), "is not private"),
        (lambda file: file.write_bytes(b"\xff"), "is not a fleet file"),
        (lambda file: file.write_text(file.read_text().replace("schema = 2", "schema = 3")), "a newer stallguard"),
        (lambda file: file.write_text(file.read_text().replace("schema = 2", "schema = 0")), "its schema is 0"),
        (lambda file: file.unlink(), "this machine is in no fleet"),
    ],
)
def test_a_fleet_file_that_cannot_be_used_says_why(lab, change, text):
    change(lab.file)
    code = 2 if not lab.file.exists() else CANNOT_RUN
    for verb in ("scheduler", "worker", "job", "machines", "cordon", "submit", "sweep"):
        said = lab.refused(*ASKING[verb], code=code)
        assert text in said
        assert len(said.splitlines()) >= 3  # what, why, what to do


def test_a_fleet_file_of_another_user_is_refused(lab, monkeypatch):
    os.chown(lab.file, 4321, -1)
    said = lab.refused("fleet", "machines")
    assert "belongs to another user (uid 4321)" in said
    assert "copy the file as your own" in said


@pytest.mark.parametrize("verb", ["scheduler", "worker"])
def test_certificates_that_are_damaged_or_have_expired_are_refused_before_anything_starts(lab, verb):
    good = lab.member
    lab.change(ca="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    said = lab.refused(*ASKING[verb])
    assert "certificates that cannot be used" in said
    assert "fleet invite NAME" in said
    membership.write(lab.file, good, replace=True)
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=40)
    founding.invite(good, good.name, 30, lab.file, founding.beside(lab.file), long_ago, force=True)
    assert f"the certificate of member {good.name} has expired" in lab.refused(*ASKING[verb])
    assert "expired" in lab.verb("doctor")


def test_a_worker_with_the_certificate_of_another_fleet_ends_and_says_so(lab):
    (lab.place / "else").mkdir()
    other = make(lab.place, lab.place / "other.toml", lab.place / "else")
    lab.change(ca=other.ca, certificate=other.certificate, key=other.key, revoked=other.revoked)
    assert "has another authority than the fleet" in lab.refused("fleet", "worker")


def test_what_another_user_forges_is_refused_where_a_person_sees_it(lab):
    """Who can write to the store, and has no fleet file: a job of his, and a copy of ours; an order to end ours."""
    lab.verb("fleet", "submit", "--name", "j", "--needs", "cuda", "t.py", code=0)
    store = lab.store
    store.create(orders.Submission.place(job="forged"), orders.encode(submission("forged"), signs("mini")))
    store.create(orders.Submission.place(job="copied"), store.read(orders.Submission.place(job="j")))
    store.replace(orders.Stop.place(job="j"), orders.encode(Stop(schema=1, job="j", by="eve"), signs("mini")))
    newer = replace(submission("newer"), schema=2)
    store.create(orders.Submission.place(job="newer"), orders.encode(newer, lab.signatures))
    expected = {
        "forged": "its signature is not of this fleet",
        "copied": "it was signed as jobs/j/submission, and copied to this name",
        "newer": "a newer stallguard submitted it (schema 2, this one reads 1): update stallguard here",
        "j": "an order to stop it is refused: its signature is not of this fleet",
    }
    scheduler = lab.start("fleet", "scheduler", "--listen", lab.member.scheduler.removeprefix("tls://"))
    said = lab.until(*expected.values(), of=scheduler)
    listed = lab.verb("ls", code=0)
    for job, text in expected.items():
        assert f"job {job}" in said
        assert text in " ".join(lab.verb("status", job).split())
        assert text in listed
    assert "waiting" in lab.verb("ls", "--live", code=0)
    for job in ("forged", "copied", "newer"):
        assert expected[job] in " ".join(lab.verb("fleet", "job", job, code=CANNOT_RUN).split())


def test_machines_with_other_versions_are_named_by_the_list_and_by_the_worker(lab):
    scheduler = lab.start("fleet", "scheduler", "--listen", lab.member.scheduler.removeprefix("tls://"))
    lab.until("listens at", of=scheduler)
    card(lab, "pro", versions={"python": "3.9.1", "tensorflow": "2.15.0", "keras": "9.9"})
    other = lab.start(
        "fleet", "worker", "--name", "mini", wrapper=(str(CHILDREN / "other_versions.py"), "0.0.1", "2020.1.1")
    )
    said = lab.until("versions differ: stallguard", "versions differ: distributed", of=other)
    assert "3.9.1 on pro" in said
    assert "0.0.1 on mini" in said
    assert "the scheduler (" in said
    listed = lab.until("mini", ask=("fleet", "machines"))
    assert "versions differ: stallguard: 0.0.1 on mini" in listed
    assert "versions differ: python" in listed
    assert "keras" not in listed.partition("versions differ")[2]  # known of one machine alone


def test_a_job_that_no_machine_fits_says_so_at_once_and_starts_when_one_joins(lab):
    where = lab.member.scheduler.removeprefix("tls://")
    scheduler = lab.start("fleet", "scheduler", "--listen", where)
    small = lab.start("fleet", "worker", "--name", "small", "--memory", "1GB")
    lab.until("is connected", of=small)
    said = lab.verb("fleet", "submit", "--name", "j", "--needs", "memory=2GB", "t.py", code=0)
    assert "no machine can take it now, so it waits: small has 1 of 2 memory" in said
    lab.until("job j waits: no connected machine has what it needs", of=scheduler)
    for words in (("ls", "--live"), ("status", "j")):
        assert "small has 1 of 2 memory" in lab.verb(*words, code=0)
    lab.start("fleet", "worker", "--name", "big", "--memory", "3GB", home="there")
    lab.until("finished", ask=("status", "j"))
    assert "big" in lab.verb("status", "j", code=0)


HIDING = """
import os, sys
class Hidden:
    names = set(os.environ.get("HIDE", "").split())
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
ALL = "distributed dask obstore botocore uv"  # of the extra, but what signs


@pytest.fixture
def hiding(lab):
    (lab.place / "hide").mkdir()
    (lab.place / "hide" / "sitecustomize.py").write_text(HIDING)
    lab.env["PYTHONPATH"] = f"{lab.place / 'hide'}:{ROOT}"
    return lab


@pytest.mark.parametrize(
    ("hidden", "words", "missing"),
    [
        ("distributed", ("fleet", "scheduler"), "distributed"),
        ("distributed", ("fleet", "scheduler", "--install"), "distributed"),
        ("distributed", ("fleet", "worker"), "distributed"),
        ("distributed", ("fleet", "worker", "--install"), "distributed"),
        ("cryptography", ("fleet", "init", "--store", "{store}", "--force"), "cryptography"),
        ("cryptography", ("fleet", "init", "--renew"), "cryptography"),
        ("obstore", ("run", "--store", "s3://a/b", "--job", "j", "t.py"), "obstore"),
        ("obstore", ("status", "j", "--store", "s3://a/b"), "obstore"),
        ("botocore", ("run", "--store", "s3://a/b", "--job", "j", "t.py"), "botocore"),
        ("botocore", ("status", "j", "--store", "s3://a/b"), "botocore"),
    ],
)
def test_a_verb_whose_package_is_missing_names_the_extra(hiding, hidden, words, missing):
    before = hiding.file.read_bytes()
    said = hiding.refused(*words, HIDE=hidden)
    assert f"needs a package that is missing: {missing}" in said
    assert "stallguard-train[fleet]" in said
    assert hiding.file.read_bytes() == before


def test_without_the_package_that_signs_each_verb_of_a_fleet_says_so_and_runs_of_this_machine_are_listed(hiding):
    hiding.verb("fleet", "submit", "--name", "j", "t.py", code=0)
    for words in (*(ASKING[verb] for verb in ("machines", "cordon", "submit", "status", "stop", "run", "job")),):
        said = hiding.refused(*words, HIDE="cryptography")
        assert "needs a package that is missing: cryptography" in said
        assert "stallguard-train[fleet]" in said
    for words in LISTS:
        assert "the jobs of the fleet are missing: a fleet needs a package" in hiding.verb(*words, HIDE="cryptography")


def test_verbs_that_need_no_other_package_of_the_extra_work_without_it(hiding):
    card(hiding, "mini")
    without = {"HIDE": ALL}
    hiding.verb("fleet", "submit", "--name", "j", "t.py", code=0, **without)
    hiding.verb("fleet", "sweep", "sweep.toml", code=0, **without)
    assert "mini" in hiding.verb("fleet", "machines", code=0, **without)
    hiding.verb("fleet", "cordon", "mini", "--why", "hot", code=0, **without)
    assert "mini is cordoned (hot)" in hiding.verb("status", "j", code=0, **without)
    assert hiding.verb("ls", "--live", code=0, **without).count("waiting") == 3
    hiding.verb("stop", "s-001", code=0, **without)
    hiding.verb("report", "--fleet", "--html", str(hiding.place / "page.html"), code=0, **without)
    hiding.verb("run", "--store", "{store}", "--job", "by-hand", "t.py", code=0, **without)
    assert "the certificate of this member lasts" in hiding.verb("doctor", **without)


def test_a_job_with_a_lock_file_says_that_uv_is_missing(hiding):
    (hiding.project / "uv.lock").write_text("version = 1\n")
    (hiding.project / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    hiding.verb("fleet", "submit", "--name", "j", "t.py", code=0)
    said = hiding.verb("fleet", "job", "j", code=CANNOT_RUN, HIDE="uv", PATH="/usr/bin:/bin")
    assert "stallguard-train[fleet]" in said
    assert "uv" in said


def test_there_is_no_job_or_machine_of_that_name(lab):
    assert "submit it first" in lab.refused("fleet", "job", "absent", code=NO_SUCH_RUN)
    assert "there is no machine 'absent'" in lab.refused("fleet", "cordon", "absent", "--why", "x", code=NO_SUCH_RUN)

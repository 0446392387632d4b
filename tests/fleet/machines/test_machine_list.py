"""`stallguard fleet machines`, `cordon` and `uncordon`."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE
from stallguard.fleet.machines import machine_list
from stallguard.fleet.store import orders
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.orders import WorkerCard
from tests.cli.test_json import conforms
from tests.fleet.members import signs, signs_for

NOW = dt.datetime(2026, 6, 10, 12, 0, tzinfo=dt.UTC)
OWN = signs("ann")


def card(host="studio", at=NOW, **more):
    by, time = more.pop("by", None) or signs(host), at.isoformat() if at else "noon"
    values = {"schema": 1, "host": host, "at": time, "state": "ready", "versions": {"keras": "3.5"},
              "resources": {"slots": 2, "memory": 56.0, "metal": 1, "cuda": 4},
              "about": {"chip": "Apple M2 Ultra"}} | more  # fmt: skip
    return orders.encode(WorkerCard(**values), by)


@pytest.fixture
def store(found):
    """The store of the fleet of this home, with a machine that was seen just now."""
    made = open_store(found().store)
    made.replace(
        orders.WorkerCard.place(host="studio"),
        card(at=dt.datetime.now(dt.UTC), jobs=("resnet",), by=signs_for("studio")),
    )
    return made


def test_machines_are_listed_with_what_they_offer_and_train(store, fleet):
    said = fleet("machines")
    assert "ready" in said
    assert "Apple M2 Ultra, 2 slots, 56 GB, 4 cuda, metal" in said
    assert "trains resnet" in said
    assert "keras 3.5" in said
    assert conforms(fleet("machines", "--json"), machine_list.FleetMachines)["machines"][0]["state"] == "ready"


def test_a_cordoned_machine_says_why_until_it_is_allowed_again(store, fleet):
    fleet("cordon", "studio", "--why", "its fan is loud")
    assert "cordoned" in fleet("machines")
    assert "its fan is loud" in fleet("machines")
    shown = json.loads(fleet("machines", "--json"))["machines"][0]
    assert (shown["cordon"]["why"], shown["card"]["state"]) == ("its fan is loud", "ready")
    fleet("uncordon", "studio")
    assert "cordoned" not in fleet("machines")
    assert "is not cordoned" in fleet("uncordon", "studio", code=NO_SUCH_RUN)


def test_a_machine_that_is_misspelt_is_not_cordoned(store, fleet):
    assert "did you mean studio?" in fleet("cordon", "studoi", "--why", "x", code=NO_SUCH_RUN)
    assert store.names("cordons") == []
    assert "did you mean studio?" in fleet("uncordon", "studoi", code=NO_SUCH_RUN)


def test_a_machine_that_renews_its_card_no_more_is_silent():
    for age, state in ((179, "ready"), (181, "silent")):
        found = machine_list.described("studio", card(), None, OWN, NOW + dt.timedelta(seconds=age))
        assert (found.state, found.seen) == (state, age)
    gone = machine_list.described("studio", card(state="gone"), None, OWN, NOW + dt.timedelta(days=9))
    assert gone.state == "gone"
    ahead = machine_list.described("studio", card(), None, OWN, NOW - dt.timedelta(hours=1))
    assert (ahead.state, ahead.seen) == ("ready", None)  # how long ago is not known
    assert "1 h ahead of the one here" in ahead.why


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", card(at=None), card(at=NOW.replace(tzinfo=None)), card(by=signs("eve"))],
    ids=["empty", "cut", "list", "no time", "time without zone", "of another member"],
)
def test_a_damaged_card_is_said_and_hides_no_cordon(data):
    assert machine_list.described("studio", data, None, OWN, NOW).state == "unreadable"
    cordon = orders.encode(orders.Cordon(schema=1, host="studio", at="", why="wedged"), OWN)
    assert machine_list.described("studio", data, cordon, OWN, NOW).state == "cordoned"
    assert machine_list.described("studio", card(), b"{", OWN, NOW).state == "cordoned"


def test_names_in_the_store_that_are_no_machines_are_left_out(store, fleet):
    store.replace("workers/.hidden", b"{}")
    assert len(machine_list.read(store, signs_for("ann"), NOW)) == 1


def test_a_fleet_without_machines_says_how_to_get_one(found, fleet):
    found()
    assert "stallguard fleet worker --install" in fleet("machines")


def test_without_a_fleet_or_its_store_the_error_says_what_to_do(home, found, fleet, tmp_path):
    assert "stallguard fleet init" in fleet("machines", code=USAGE)
    found()
    (tmp_path / "store").rename(tmp_path / "away")
    assert "cannot be read" in fleet("machines", code=CANNOT_RUN)


@pytest.mark.parametrize(
    ("name", "key"), [("Anna's Mac.local", "Anna-s-Mac.local"), ("-x", "x"), ("..", "unknown"), ("", "unknown")]
)
def test_host_names_become_parts_of_keys(name, key):
    assert orders.host_name(name) == key
    assert orders.JOB_NAME.fullmatch(key)


def test_a_worker_that_compares_versions_reads_some_machines_of_many(store):
    for number in range(50):
        made = card(host=f"m{number}", by=signs(f"m{number}"))
        store.replace(orders.WorkerCard.place(host=f"m{number}"), made)
    asked = []

    class Counting:
        def __getattr__(self, name):
            return lambda key: asked.append(key) or getattr(store, name)(key)

    found = machine_list.read(Counting(), signs("m0"), NOW, 20)
    assert len(found) == 20
    assert len(asked) == 2 + 2 * 20
    assert all(one.card.host == one.host for one in found if one.host != "studio")  # of another fleet
    assert len(machine_list.read(store, signs("m0"), NOW)) == 51

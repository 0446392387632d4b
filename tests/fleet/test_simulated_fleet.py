"""The scheduler with fifty simulated machines; `scripts/bench fleet --simulate 1000` does it with a thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "scripts" / "benches"
MACHINES, LEASE, SECONDS = 50, 12.0, 6.0


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    from fleets import simulation

    return simulation


@pytest.mark.costly
def test_what_a_scheduler_asks_follows_its_machines_and_not_the_jobs_that_are_over(simulation):
    said = []
    found = simulation.simulate(MACHINES, LEASE, SECONDS, said.append)
    assert found.again == 0, said
    assert found.jobs >= MACHINES * simulation.WAITING
    # By a tenth of the requests that a look at each job would take: no figure here depends on a quiet machine.
    assert sum(found.scheduler.values()) < 2 * MACHINES + 150, found.scheduler
    # Two cards a lease, each of which renews it; it was six renewals with three requests each.
    assert sum(found.machines.values()) < 3 * (60 / LEASE) * MACHINES, found.machines
    assert found.first < 4 * MACHINES * (simulation.WAITING + 1), said
    assert found.noticed < LEASE + 60, said

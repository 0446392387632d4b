"""The parts of `scripts/bench state`: the catalog of stateful things, the cases, their scripts and the verdicts."""

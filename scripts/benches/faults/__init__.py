"""The parts of `scripts/bench storm`."""

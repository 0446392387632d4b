"""The parts of `scripts/bench memory`: simulated nights, and real trainings that leak in a control group."""

"""The parts of `scripts/bench gpu`: trainings that a real GPU stops, disturbs, or only slows down."""

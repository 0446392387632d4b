"""The decoders that `scripts/bench fuzz` feeds, their inputs, and what must hold of the results."""

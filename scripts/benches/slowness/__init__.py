"""`scripts/bench slow`: the programs, what is expected of each, how they are run, and what is measured beside them."""

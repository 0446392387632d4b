"""The parts of the bench `resume`: attempts of a small training, and runs that are killed again and again."""

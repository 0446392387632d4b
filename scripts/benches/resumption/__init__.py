"""The parts of the bench `resume`: one attempt of a training, and chains of attempts that are killed."""

"""The parts of the bench `exact`: scripts as users write them, the disturbances, and what becomes of their results."""

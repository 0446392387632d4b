"""The jobs of a fleet: how one is submitted, prepared and trained, what is published of it, and what people see."""

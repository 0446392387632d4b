"""The parts of the bench `chaos`: one row a fault, and the stage on which a fault is made."""

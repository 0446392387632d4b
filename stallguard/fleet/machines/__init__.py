"""The machines of a fleet: who is a member, what a machine offers, and which one has a job."""

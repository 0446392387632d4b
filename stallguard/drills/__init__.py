"""Scripts that the drill runs in the user's training environment; data, not imported by stallguard."""

"""The supervisor: one deciding thread, and the threads at its edges that can block."""

"""Bottlenecks: what makes a training slow, with numbers, from samples of its stacks and readings of the machine."""

"""One simulator of a run and its machine, for every test that feeds the core with events that nothing real sent."""

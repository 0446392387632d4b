"""Trainings of several machines with a store between them: what no engine for jobs gives."""

"""Diagnosis: why is it stalled?  From the history and the judgement to the causes that fit."""

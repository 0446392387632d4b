"""Checks before a training: facts are gathered once, then judged by a table of small checks.

    inside/    scripts that the training's own interpreter runs
    facts      the values; gather reads them from the machine, interrogate from the training's interpreter
    checks     the table; machine_checks and environment_checks hold the functions

The package must not change anything, and never imports a framework into this process.
"""

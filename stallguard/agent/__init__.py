"""Overnight jobs: launchd agents on macOS, systemd user units on Linux, under one set of verbs.

`job` is the value.  `launchd` and `systemd` make its text and manage installed jobs, `launchctl_answers` parses what
launchctl says, `preflight` refuses jobs that would fail, `due_starts` decides what a start means, `runner` is what an
installed job executes.
"""

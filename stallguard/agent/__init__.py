"""Overnight jobs: launchd agents on macOS, systemd user units on Linux, under one set of verbs.

`job` is the value.  `launchd` and `systemd` make its text and manage installed jobs,
`launchctl_output` and `launchctl_codes` parse launchctl, `preflight` refuses jobs that would fail, `runner` is what
an installed job executes.
"""

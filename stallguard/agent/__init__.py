"""Overnight jobs: launchd agents on macOS, systemd user units on Linux, under one set of verbs.

Rooms: job (the value), plist and unit (its text), printed and answers (what the service manager says), launchd and
systemd (the verbs), refusals (what would fail at night), work (what the job does when it is started).
"""

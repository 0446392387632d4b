"""The files of runs: paths, formats, retention, and what later runs read."""

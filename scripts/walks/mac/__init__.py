"""The checks that only a Mac with Apple silicon can make, as a walk with a table at its end.

Rooms: table (its rows), verdicts and verdicts_kernel, _steps, _jobs, _longer (what recorded outputs mean), recordings
and archive (where they are kept), scene and guarded (how the Mac is asked, and how a run is watched), machine, kernel,
files, sockets, terminal, orphans, frameworks, gpu, steps, night and jobs (the checks of a walk), longer and pending
(those that end in a later walk), checks (their list).
"""

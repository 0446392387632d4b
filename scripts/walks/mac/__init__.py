"""The checks that only a Mac with Apple silicon can make, as a walk with a table at its end.

Rooms: table (its rows), verdicts (what recorded outputs mean), recordings (where they are kept), scene (how the Mac is
asked), machine, gpu and night (the checks), checks (their list).
"""

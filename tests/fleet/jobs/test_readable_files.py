"""What of a run is put into the store."""

from __future__ import annotations

from stallguard.fleet.jobs import readable_files
from stallguard.fleet.jobs.readable_files import Growing


def test_the_chunks_of_a_file_of_any_size_are_found_at_once():
    size = 1 << 60
    cut, goes_on = readable_files.hole(size, readable_files.MOST["output"])
    file = Growing("output.log", 1, size, cut, goes_on)
    wanted = readable_files.chunks(file, 0)
    assert wanted[0] == 0
    assert wanted[1] == goes_on // readable_files.CHUNK
    assert wanted[-1] == size // readable_files.CHUNK - 1
    assert readable_files.chunks(file, size - 1) == wanted[-1:]

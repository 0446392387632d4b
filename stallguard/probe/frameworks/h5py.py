"""h5py: it opens files by itself, and a training can change one in place."""

from __future__ import annotations

from ..libraries import Library

LIBRARY = Library(
    "h5py", patches={"files": {"h5py._hl.files": ("checkpoint.file_events", "patch_files")}}, distributions=("h5py",)
)

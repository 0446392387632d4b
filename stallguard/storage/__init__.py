"""What a run leaves on the disk, and what runs leave for later ones: paths, formats, retention."""

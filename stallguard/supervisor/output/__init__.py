"""The training's output: carried to the user unchanged, kept in output.log, searched for known lines."""

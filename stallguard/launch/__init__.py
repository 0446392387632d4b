"""From the user's command to a process: command, interpreter, batch size, environment, checkpoints to resume from."""

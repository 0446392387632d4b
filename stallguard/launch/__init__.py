"""From the words of the user to a process: command, interpreter, batch size, environment, what it resumes from."""

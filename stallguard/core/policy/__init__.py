"""Policy: what follows?  From the causes and the attempts so far to a decision."""

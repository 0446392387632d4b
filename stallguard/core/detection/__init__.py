"""Detection: is the training stalled?  From heartbeats and readings to a judgement; explains nothing."""

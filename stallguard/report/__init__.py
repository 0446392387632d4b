"""The report: tells what the journal remembers, and decides nothing."""

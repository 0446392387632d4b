"""The report: shows what the journal holds, and decides nothing."""

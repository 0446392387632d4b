"""What the bench `matrix` is made of: cells, what the documents promise of each, and how each is tried."""

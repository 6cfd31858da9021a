"""Records that are delivered later: how they are found in produced batches, where they wait, and how they are handed over."""

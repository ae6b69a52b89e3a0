"""Taking drainproof out of a cluster: what it made is found, told from what others made, and removed in order."""

"""The lab: what evictions, deadlines and grace periods do to Jobs on real components, with drainproof and without."""

"""Benchmarks: what a decision costs, in one run beside its peers."""

"""drainproof: Kubernetes Jobs that survive being drained."""

__version__ = "0.1.0"

"""The experiments of the lab, one module for each subject."""

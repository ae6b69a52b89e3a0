"""The pure part: an object and a policy go in, a verdict comes out. Standard library only."""

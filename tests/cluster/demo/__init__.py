"""The demo: every manifest of examples/ in front of a real API server, held to what its own comment claims."""

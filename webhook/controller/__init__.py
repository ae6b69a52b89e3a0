"""The second process: what needs the API server, kept apart from the webhook so that the webhook needs none of it."""

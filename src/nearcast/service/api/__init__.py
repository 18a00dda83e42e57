"""The HTTP side of the service: routes, schemas, errors, tokens and metrics."""

"""An API server in one process: object store, watch, patch, pod subresources, served as HTTP with JSON."""

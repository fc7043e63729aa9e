"""An API server in one process: object store, watch, patch, pod subresources; JSON over HTTP."""

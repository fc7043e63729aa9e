"""The dashboards and alerts of `manifests/components`, made of compact descriptions: `python -m tests.monitoring`."""

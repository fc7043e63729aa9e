"""PodResources API v1, generated from `podresources_v1.proto`."""

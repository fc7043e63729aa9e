"""PodResources API of the kubelet, by version."""

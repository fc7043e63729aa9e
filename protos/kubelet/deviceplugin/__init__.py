"""Device plugin API of the kubelet, by version."""

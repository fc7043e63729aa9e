"""The device plugin: one process per GPU node, beside the stock kubelet.

It tells the cluster which GPUs the node has, offers them to the kubelet as extended resources, and answers the
kubelet's Allocate with exactly the GPUs that the pod's annotation names. Read in this order: `machine` (what the
hardware is), `devices` (what is offered of it), `candidates` (which container an Allocate is for), `adopt` (which GPUs
it gets), `answers` (what the kubelet is told); those decide and do nothing else. Around them `allocate`, `server`,
`register`, `publish` and `cluster` talk to the kubelet and the API server, and `plugin` holds it all together.

It must not know the extender: all that the two share is in `protos`.
"""

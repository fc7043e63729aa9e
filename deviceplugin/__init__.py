"""The device plugin: one process per GPU node, beside the stock kubelet.

It publishes the GPUs of the node, offers them to the kubelet as extended resources, and answers the kubelet's Allocate
with the GPUs that the pod's annotation names. Read in this order: `machine` (the hardware), `devices` (what is offered
of it), `candidates` (which container an Allocate is for), `adopt` (which GPUs it gets), `answers` (the answer). These
only decide. `allocate`, `server`, `register`, `publish` and `cluster` talk to the kubelet and the API server, and
`plugin` puts all together.

It must not import the extender: what the two share is in `protos`.
"""

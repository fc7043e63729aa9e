"""The kubelet's two gRPC protocols: .proto files, and the code generated from them (checked in, never edited).

    from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
    from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc
    from protos.kubelet.podresources.v1 import podresources_v1_pb2 as podresources
    from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as podresources_rpc

Messages are in `*_pb2`; stubs (`DevicePluginStub(channel)`), servicers to subclass and `add_…_to_server` are in
`*_pb2_grpc`. Both are fully typed, for `grpc` and `grpc.aio` channels alike: a stub made from an `aio.Channel` is
seen as its `…AsyncStub`. After a change of a .proto file run `python -m protos.generate`.
"""

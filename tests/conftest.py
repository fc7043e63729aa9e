"""What all tests share."""

import grpc.aio
from hypothesis import settings

settings.register_profile("gangshare", deadline=None)  # how long an example takes is no matter of a unit test
settings.load_profile("gangshare")
grpc.aio.init_grpc_aio()  # or its poller ends with the last server's memory, where it may wait for itself

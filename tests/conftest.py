"""What all tests share."""

from hypothesis import settings

settings.register_profile("gangshare", deadline=None)  # how long an example takes is no matter of a unit test
settings.load_profile("gangshare")

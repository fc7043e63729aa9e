"""Device plugin API v1beta1, generated from `deviceplugin_v1beta1.proto`."""

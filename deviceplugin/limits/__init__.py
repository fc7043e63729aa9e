"""The helper with the right to set memory limits of NVIDIA's driver: an optional component, a process of its own.

The driver takes limits from root only, and the device plugin has no privilege. The helper listens on a socket of the
host that only root reaches, and sets limits on control groups of pods, nothing else. Read in this order: `protocol`
(what is asked and answered), `helper` (whether a limit may be set, and whether it holds), `nvml` (the driver), `serve`
(the socket). `client` is the plugin's side.
"""

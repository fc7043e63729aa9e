"""What is: nodes, pods, GPUs, reservations, GpuClasses, and what was set aside after an error."""

"""Replay of a GPU trace by the published protocol of FGD, with the published policies and our own engine.

The cluster starts empty. The pods of a list arrive one by one and stay; a pod that fits no node is dropped.
The result is, at each arrived demand, how much GPU is allocated, and how much of the idle GPU is fragmented.
Read in this order: ``trace`` (the lists), ``workload`` (order of arrival), ``cluster`` (free resources), ``fragment``
(the measure), ``baselines`` and ``ranking`` (published policies), ``ours`` (the engine), ``replay``.
Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023.
"""

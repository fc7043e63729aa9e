"""Replay of a GPU trace by the published protocol of FGD, with the published policies and our own engine.

A cluster of GPU nodes stands empty; the pods of a list arrive one by one and stay; one that fits nowhere is dropped.
The result: how much of the GPUs is allocated once so much has arrived, and how much of the idle ones nobody can use.
Read in this order: ``trace`` (the lists), ``workload`` (what arrives in which order), ``cluster`` (what is free),
``fragment`` (the measure), ``baselines`` and ``ranking`` (published policies), ``ours`` (the engine), ``replay``.
Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023.
"""

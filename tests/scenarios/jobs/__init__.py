"""Distributed jobs as their operators turn them into PodGroups and pods.

What schedulers read is as those operators write it (read in their sources): names, labels, annotations, owners,
scheduler names, requests, affinity, what a PodGroup gets where the job says nothing, and when pods are made. Services,
and volumes with host files and ssh keys, are left out; commands are those of the scenarios.
"""

"""What happens in a naive world for gangs: to pods, at kube-scheduler (which comes only when it would), to nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from extender.engine.types.effects import PostBinding
from extender.engine.types.events import BindDone, Leading, NodeGone, NodeSeen, PodsListed
from gangfilter.members import Stage
from protos.contract import names
from protos.contract.objects import ContainerStatus, Pod
from tests.builders import a_pod
from tests.property.gang_extenders import GangExtenders
from tests.property.gang_truth import ASKS, NODES, Sort
from tests.unit.engine.gang_story import a_member, bound_pod


class GangEvents(GangExtenders):
    """One method for each thing that may happen."""

    # -- controllers

    def make_gang(self, size: int, least: int, *, owned: bool, lost: str, ends: bool, launcher: bool, now: int) -> None:
        """A gang of this size, of which `now` members exist and the others will."""
        self.made += 1
        gang = f"g{self.made}"
        sort = self.sorts[gang] = Sort(least, gang if owned else "", lost, "launcher" if ends else "", launcher)
        new: list[Pod] = []
        for i in range(size):
            role = "launcher" if launcher and not i else "worker"
            ask = {} if role == "launcher" else self.draw.choice(ASKS)
            new.append(self.a_pod_of(sort, gang, f"{role}-{gang}-{i}", role, ask))
        for pod in new[:now]:
            self.appear(pod)
        self.missing += new[now:]

    def a_pod_of(self, sort: Sort, gang: str, name: str, role: str, ask: dict[str, Any]) -> Pod:
        said = {"lost": sort.lost, "role": role} | ({"ends": sort.ends} if sort.ends else {})
        main = self.box(ask)
        return a_member(name, gang=gang, least=sort.least, owner=sort.owner, containers=[main], **said)

    def box(self, ask: dict[str, Any]) -> dict[str, Any]:
        keys = {"mem": names.GPU_MEM, "slices": names.GPU_SLICE, "whole": names.WHOLE_GPU}
        limits = {"cpu": "1"} | {keys[key]: str(amount) for key, amount in ask.items()}
        return {"name": "main", "resources": {"limits": limits, "requests": limits}}

    def make_single(self) -> None:
        self.made += 1
        self.appear(a_pod(f"s{self.made}", containers=[self.box(self.draw.choice(ASKS[:-1]))]))

    def appear(self, pod: Pod) -> None:
        self.made += 1
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"u{self.made}"))
        self.coming.add(pod.metadata.name)
        self.create(pod)

    def controller_acts(self) -> None:
        """A pod that is missing is made."""
        if self.missing:
            pod = self.missing.pop(0)
            if pod.metadata.name not in self.pods:
                self.appear(pod)
            else:
                self.missing.append(pod)

    def vanish(self, name: str, *, anew: bool = True) -> None:
        """The pod is deleted, and replaced if it has a controller."""
        pod, sort = self.pods[name], self.sorts.get(self.gang_of(name))
        if sort is not None:
            sort.gone += pod.status.phase == "Succeeded"
        self.offers.pop(name, None)
        self.coming.discard(name)
        self.to_go.pop(name, None)
        place = self.flying.pop(name, None)
        with self.losing(name):
            self.delete(name)
        if place is not None:
            self.tell_lost(place)
        self.held.discard(name)
        if anew and self.owner(pod):
            kept = {k: v for k, v in pod.metadata.annotations.items() if k != names.ALLOCATION}
            metadata = msgspec.structs.replace(pod.metadata, annotations=kept, deletion_timestamp=None)
            self.missing.append(Pod(metadata, msgspec.structs.replace(pod.spec, node_name=None)))
        self.mark()

    @contextmanager
    def losing(self, name: str) -> Iterator[None]:
        """The pod ends in this; where it ran, it leaves its room."""
        pod, gang = self.pods[name], self.gang_of(name)
        ran = pod.spec.node_name in self.nodes and pod.status.phase == "Pending" and gang
        if ran:
            self.rooms.leave(pod, gang, self.now)
        yield
        if ran:
            self.rooms.must_keep(pod.metadata.uid, self.engine, self.sorts[gang].least)

    def tell_lost(self, place: PostBinding) -> None:
        self.tell(BindDone(place.pod.uid, "lost"))

    def eviction_happens(self, name: str) -> None:
        anew = self.to_go.pop(name)
        if name in self.pods:
            self.terminate(name)
            self.mark()
            self.vanish(name, anew=anew)

    # -- kube-scheduler

    def take(self, name: str, *, bind: bool = True) -> None:
        """kube-scheduler takes the pod: in-tree filters, ours, and bind."""
        if name not in self.pods or self.pods[name].spec.node_name or name in self.flying or name in self.held:
            self.coming.discard(name)
            return
        self.coming.discard(name)
        self.offers.pop(name, None)
        nodes = [node for node in sorted(self.nodes) if node not in self.closed and self.free_cpus(node) > 0]
        self.kept_off[name] = set(NODES) - set(nodes)
        if not nodes:
            return
        rooms = self.rooms_for(name, nodes)
        verdict = self.ask(name, nodes)
        assert set(verdict.nodes) <= set(nodes)
        assert not rooms or set(verdict.nodes) <= rooms, f"{name} is sent past the rooms kept for it on {rooms}"
        if verdict.nodes:
            self.offers[name] = self.draw.choice(verdict.nodes)
            if bind:
                self.goes_to_bind(name)
        self.mark()

    def rooms_for(self, name: str, nodes: list[str]) -> set[str]:
        """Where a member goes that comes for one that was lost, and asks as little."""
        gang, uid = self.gang_of(name), self.pods[name].metadata.uid
        known = self.engine.gangs.roster.of(uid)
        if not self.leads or known is None or known.gang.members[uid].stage is not Stage.IDLE:
            return set()
        asks = self.engine.pods[uid].ask
        same = {slot.node for slot in self.engine.ledger.keepers.values() if slot.ask == asks}
        return self.rooms.may_go_to(gang, name.split("-")[0]) & same & set(nodes)

    def goes_to_bind(self, name: str) -> None:
        node = self.offers.pop(name)
        if name in self.pods and not self.pods[name].spec.node_name and name not in self.held | set(self.flying):
            if self.bind(name, node) not in ("held", "flying", "bound"):
                self.coming.add(name)
            self.mark()

    def everybody_is_asked_again(self) -> None:
        """Some event of the cluster: kube-scheduler tries all refused pods once more."""
        self.coming |= set(self.waiting())

    def binding_ends(self, name: str, *, happened: bool, told: bool = True) -> None:
        if happened and self.flying[name].node in self.nodes:
            self.land(name, told=told)
        else:
            self.fail(name)
            self.coming.add(name)
        self.mark()

    # -- kubelets and nodes

    def kubelet_refuses(self, name: str) -> None:
        sort = self.sorts.get(self.gang_of(name))
        if sort is not None and self.now < sort.released_at + 29:
            gang = self.gang_of(name)
            sort.pending = sort.pending or len(self.bound_in(gang)) + self.done_in(gang) >= sort.least
        self.refuse(name)
        self.vanish(name)

    def ends(self, name: str, *, well: bool) -> None:
        if well:
            self.change(name, phase="Succeeded")
            self.to_go.pop(name, None)
            self.mark()
        else:
            with self.losing(name):
                self.change(name, phase="Failed", container_statuses=(ContainerStatus("main"),))
            self.vanish(name)

    def node_goes(self, name: str) -> None:
        del self.nodes[name]
        self.rooms.node_went(name)
        self.tell(NodeGone(name))
        for pod in [n for n, p in self.pods.items() if p.spec.node_name == name]:
            self.vanish(pod, anew=self.pods[pod].status.phase == "Pending")
        self.run_slice()

    def node_comes(self, name: str) -> None:
        self.nodes[name] = self.a_node(name)
        self.tell(NodeSeen(self.nodes[name]))
        self.everybody_is_asked_again()
        self.run_slice()

    # -- extenders, and time

    def extender_restarts(self, *, landed: bool) -> None:
        """What was being written happened or not; held binds fail."""
        for name, place in list(self.flying.items()):
            if landed and place.node in self.nodes:
                self.pods[name] = bound_pod(self.pods[name], place, self.now)
            self.coming.add(name)
        self.coming |= self.held
        self.leads = True
        self.flying, self.held = {}, set()
        self.mark()
        self.restart()
        self.rooms.remembered_by(self.engine)
        self.forgive()

    def the_other_takes_over(self, *, landed: bool) -> None:
        """What was being written happened or not before the other one reads everything once more and begins."""
        assert self.standby is not None
        before, led = self.engine, self.leads
        self.tell(Leading(False))
        for name in sorted(self.flying):
            self.binding_ends(name, happened=landed)
        self.engine, self.standby = self.standby, before
        self.leads = True
        self.rooms.remembered_by(self.engine)
        super().tell(*self.listed(), PodsListed(), Leading(True))
        if not led:
            self.forgive()
        self.learnt_late()
        self.coming |= set(self.offers)
        self.offers.clear()
        self.run_slice()

    def learnt_late(self) -> None:
        """The watch showed this process a half gang later than the other process: its time runs from then."""
        for key, known in self.engine.gangs.roster.known.items():
            sort = self.sorts[key.name]
            if sort.half_since is not None:
                sort.half_since = max(sort.half_since, known.gang.since)

    def passes_time(self, seconds: float) -> None:
        self.later(seconds)
        self.mark()

"""The books of one node: the usage of each GPU by pods.

They count memory, slices and whole GPUs. Overused GPUs are counted as they are; `GpuBook.fits` tells whether a new
demand fits. Pods are identified by UID, GPUs by UUID. A bound pod with unknown GPUs (`place` without an allocation) is
charged on every GPU that it may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from protos.contract import cordon, links
from protos.contract import inventory as inv
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.gpu_book import GpuBook, peak
from protos.contract.instances import of_instance, slices_of
from protos.contract.on_demand import OnDemand
from protos.contract.remembered import Remembered
from protos.contract.selection import Selection, compiled, suits
from protos.contract.served import lack, spread_over
from protos.contract.signature import Kind, Signature, of_inventory, signatures, taken

_suited: Remembered[tuple[Kind, Selection], tuple[int, ...]] = Remembered(8192, 2**21, lambda key: key[1].length)
"""Positions of the healthy GPUs that a selection without UUIDs accepts, by kind of inventory."""


class Entry(msgspec.Struct, eq=False):
    """One pod's charges on GPUs of this node. `placed` is False while its GPUs are unknown."""

    ask: PodAsk
    charges: Mapping[str, Demand]
    placed: bool
    soft: bool = False
    """A hold for a pod that is not bound yet. Pods with unknown GPUs may be charged on the same GPUs."""


class NodeBooks:
    """The GPUs of one node and the pods on them."""

    def __init__(self, inventory: inv.Inventory, cordoned: Iterable[str] = ()) -> None:
        self.entries: dict[str, Entry] = {}
        self._unknown: dict[str, Entry] = {}
        """The entries that are not placed."""
        self._rebuild(inventory, frozenset(cordoned))

    def set_inventory(self, inventory: inv.Inventory, cordoned: Iterable[str] = ()) -> None:
        """Set a new inventory; `cordoned` has UUIDs or indexes. Charges stay, also on missing GPUs."""
        marks = frozenset(cordoned)
        if marks != self._marks or inventory is not self.inventory:
            self._rebuild(inventory, marks)

    def _rebuild(self, inventory: inv.Inventory, marks: frozenset[str]) -> None:
        self.inventory, self._marks = inventory, marks
        self.topology = links.topology(inventory.links, tuple((gpu.index, gpu.numa) for gpu in inventory.gpus))
        self.on_demand = OnDemand(inventory) if inventory.layouts else None
        """The MIG instances that can be made; they are among `gpus`."""
        every = (*inventory.gpus, *self.on_demand.instances) if self.on_demand else inventory.gpus
        cordoned = cordon.covered(marks, every)
        self.profiles = frozenset([gpu.profile for gpu in every if gpu.mig])
        """The profiles of the MIG instances, and of those that can be made."""
        self.gpus = {
            gpu.uuid: GpuBook(gpu, slices_of(gpu, inventory.slices_per_gpu), gpu.uuid in cordoned) for gpu in every
        }
        for index in self.on_demand.gpus if self.on_demand else ():
            book = self.gpus[index]
            book.divisible = book.gpu.health == inv.IN_MIG_MODE and not book.cordoned
        self.uuids = frozenset([uuid.lower() for uuid in self.gpus])
        self.several_models = len({(gpu.model, gpu.profile) for gpu in every}) > 1
        self.kind = of_inventory(inventory)
        """The content of the inventory; one object for all equal ones."""
        self._signature: Signature | None = None
        for entry in self.entries.values():
            if entry.placed:
                self._apply(entry.charges, 1)
            else:
                entry.charges = {}  # its charges were on the former GPUs
        self._place_unknown()

    def copy(self) -> NodeBooks:
        """An independent copy for trials."""
        twin = NodeBooks.__new__(NodeBooks)
        twin.inventory, twin.kind, twin._signature = self.inventory, self.kind, self._signature
        twin.topology, twin.uuids, twin._marks = self.topology, self.uuids, self._marks
        twin.several_models, twin.profiles = self.several_models, self.profiles
        twin.on_demand = self.on_demand
        twin.gpus = {uuid: book.copy() for uuid, book in self.gpus.items()}
        twin._unknown = {uid: Entry(entry.ask, entry.charges, placed=False) for uid, entry in self._unknown.items()}
        twin.entries = {**self.entries, **twin._unknown}
        return twin

    def without(self, uids: Iterable[str]) -> NodeBooks:
        """An independent copy without these pods."""
        twin = self.copy()
        for uid in uids:
            twin.release(uid)
        return twin

    def idle(self, *, instances: bool = False) -> tuple[int, ...]:
        """The indexes of the idle GPUs; with `instances`, of idle MIG instances, too."""
        return tuple([b.gpu.index for b in self.gpus.values() if b.idle and (instances or not b.gpu.mig)])

    def signature(self) -> Signature:
        """Equal for nodes on which the same asks fit, apart from asks by UUID."""
        if self._signature is None:
            used = [
                taken(b.mem_used, b.slices_used, b.wholes + b.blocked, b.sharers + b.cut, b.cordoned)
                for b in self.gpus.values()
            ]
            state = self.kind, tuple(used)
            self._signature = signatures.get(state)
            if self._signature is None:
                self._signature = signatures[state] = Signature(*state)
        return self._signature

    def demand(self, ask: ContainerAsk, gpu: inv.Gpu) -> Demand | None:
        """The ask's demand on `gpu`; None if this node does not serve the ask, or lacks something for such parts."""
        amounts = self.amounts(ask, gpu)
        return amounts if amounts is None or amounts.whole or not lack(self.inventory, ask) else None

    def amounts(self, ask: ContainerAsk, gpu: inv.Gpu) -> Demand | None:
        """What a container with this ask uses of `gpu`, however it is isolated; None if the node does not serve it."""
        if gpu.mig or ask.profile:
            return of_instance(ask, gpu, self.inventory)
        per_gpu = self.inventory.slices_per_gpu
        slices, mem = ask.slices, ask.mem
        if ask.whole:
            replicas = self.inventory.replicas.get(ask.whole)
            if replicas is None:
                return None if ask.shared else Demand(gpu.mem, per_gpu, True)
            slices, mem = per_gpu // replicas, 0
        return Demand(mem or gpu.mem * slices // per_gpu, slices, False)

    def named(self, selection: Selection) -> list[str]:
        """The GPUs that match the selection's UUID globs, apart from its other terms."""
        globs = compiled(selection.uuids)
        return globs.among(self.gpus) if globs.may_let(self.uuids) else []

    def eligible(self, selection: Selection) -> tuple[GpuBook, ...]:
        """The GPUs that this selection accepts and that are offered, in index order."""
        if selection.uuids:  # not cached: each pod may name other UUIDs, and most nodes have none of them
            named = [self.gpus[uuid] for uuid in self.named(selection)]
            return tuple([book for book in named if book.offered and suits(selection, book.gpu)])
        books = tuple(self.gpus.values())
        return tuple([book for i in self._suited(selection) if not (book := books[i]).cordoned])

    def accepts_all(self, selection: Selection) -> bool:
        """Whether a selection without UUIDs accepts every healthy GPU."""
        return len(self._suited(selection)) == sum(book.gpu.health == inv.HEALTHY for book in self.gpus.values())

    def _suited(self, selection: Selection) -> tuple[int, ...]:
        positions = _suited.get(key := (self.kind, selection))
        if positions is None:
            books = enumerate(self.gpus.values())
            suited = (i for i, b in books if b.gpu.health == inv.HEALTHY and suits(selection, b.gpu))
            positions = _suited.put(key, tuple(suited))
        return positions

    def charges(self, ask: PodAsk, shares: Mapping[str, Sequence[Share]]) -> dict[str, Demand] | None:
        """The charges by GPU of a pod with these shares; None if the shares do not match its ask.

        Amounts come from `ask`, GPUs from `shares`. The total of a container is spread evenly over its GPUs, whose
        number must divide it; a whole ask needs exactly its number of GPUs. A pod keeps a whole GPU if the node later
        serves GPUs as replicas. A GPU that has left the inventory is charged by the amounts of the share.
        """
        parts: dict[str, list[tuple[ContainerAsk, Demand]]] = {}
        if set(shares) != {container.name for container in ask.containers}:
            return None
        for container in ask.containers:
            own = shares[container.name]
            spread = spread_over(container, len(own))
            if spread is None or len({share.uuid for share in own}) != len(own):
                return None
            for share in own:
                book = self.gpus.get(share.uuid)
                whole = share.whole and (bool(container.whole) or book is None or bool(book.gpu.mig))
                demand: Demand | None
                if book is None:
                    demand = Demand(share.mem, share.slices, whole)
                elif whole:
                    demand = Demand(book.gpu.mem, book.slices_per_gpu, True)
                else:
                    demand = self.amounts(spread, book.gpu)
                if demand is None:
                    return None
                parts.setdefault(share.uuid, []).append((container, demand))
        return {uuid: peak(held) for uuid, held in parts.items()}

    def place(self, uid: str, ask: PodAsk, allocation: Allocation | None) -> bool:
        """Charge a pod on the GPUs of its allocation; without a valid one, on every GPU that it may use.

        Returns whether the allocation is valid.
        """
        self.release(uid)
        charges = self.charges(ask, allocation.containers) if allocation else None
        if charges is not None:
            self._enter(uid, Entry(ask, charges, placed=True))
            return True
        self.entries[uid] = self._unknown[uid] = Entry(ask, {}, placed=False)
        self._place_unknown()
        return False

    def hold(self, uid: str, ask: PodAsk, charges: Mapping[str, Demand]) -> None:
        """Hold these charges for a pod that is not bound yet."""
        self.release(uid)
        self._enter(uid, Entry(ask, charges, placed=True, soft=True))

    def confirm(self, uid: str) -> None:
        """Book the charges that are held for the pod."""
        self.entries[uid].soft = False
        self._place_unknown()

    def stands(self, uid: str, charges: Mapping[str, Demand]) -> bool:
        """Whether exactly this is held for the pod, and new pods may get these GPUs."""
        entry = self.entries.get(uid)
        if entry is None or entry.charges is not charges or self.inventory.state != "ready":
            return False
        offered = all(b is not None and b.offered and not b.overused for b in map(self.gpus.get, charges))
        return offered and isolated(self, entry.ask, charges)

    def restore(self, uid: str, entry: Entry) -> None:
        """Put back a released entry."""
        if not entry.placed:
            self._unknown[uid] = entry
        self._enter(uid, entry)

    def _enter(self, uid: str, entry: Entry) -> None:
        self.entries[uid] = entry
        self._apply(entry.charges, 1)
        self._place_unknown()

    def release(self, uid: str) -> bool:
        """Remove the pod's charges; returns whether the pod was booked."""
        entry = self.entries.pop(uid, None)
        if entry is None:
            return False
        self._unknown.pop(uid, None)
        self._apply(entry.charges, -1)
        self._place_unknown()
        return True

    def unplaced(self) -> tuple[str, ...]:
        """UIDs of the pods with unknown GPUs."""
        return tuple(self._unknown)

    def overused(self) -> tuple[GpuBook, ...]:
        """Overused GPUs. Pods with unknown GPUs do not count."""
        unknown = self._unknown.values()
        for entry in unknown:
            self._apply(entry.charges, -1)
        overused = tuple(book for book in self.gpus.values() if book.overused)
        for entry in unknown:
            self._apply(entry.charges, 1)
        return overused

    def _apply(self, charges: Mapping[str, Demand], sign: int) -> None:
        self._signature = None
        for uuid, demand in charges.items():
            book = self.gpus.get(uuid)
            if book is not None:
                book.add(demand, sign)
            if self.on_demand:
                self.on_demand.note(uuid, self.gpus, sign)

    def _place_unknown(self) -> None:
        """Charge the pods with unknown GPUs on every GPU that has room beside the placed pods."""
        if not self._unknown:
            return
        unknown = self._unknown.values()
        aside = [entry for entry in self.entries.values() if entry.soft or not entry.placed]
        for entry in aside:
            self._apply(entry.charges, -1)
        possible = [self._possible(entry.ask) for entry in unknown]
        for entry, charges in zip(unknown, possible, strict=True):
            entry.charges = charges
        for entry in aside:
            self._apply(entry.charges, 1)

    def _possible(self, ask: PodAsk) -> dict[str, Demand]:
        charges: dict[str, Demand] = {}
        for uuid, book in self.gpus.items():
            demands = [(c, self.amounts(c, book.gpu)) for c in ask.containers]
            fitting = [(c, demand) for c, demand in demands if demand is not None and book.fits(demand)]
            if fitting:
                charges[uuid] = peak(fitting)
        return charges


def isolated(books: NodeBooks, ask: PodAsk, charges: Mapping[str, Demand]) -> bool:
    """Whether the node gives these parts, isolated as the pod demands; whole GPUs it gives in any case."""
    return not any(lack(books.inventory, each) for each in ask.containers) or all(d.whole for d in charges.values())

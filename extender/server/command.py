"""`gangshare extender`: the flags, each also from the environment, and what they mean."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import structlog
import typer
import uvloop

from extender import settings as known
from extender.server import run
from extender.settings import Address, Settings, SettingsError
from protos import logs
from protos.contract import names, quantity
from protos.kube.credentials import CredentialsError
from protos.logs import LogFormat, LogLevel

T = TypeVar("T")
DEFAULTS = Settings()


class Election(StrEnum):
    """Who may write."""

    SCHEDULER = "scheduler"
    OWN = "own"
    NONE = "none"


class Counted(StrEnum):
    """What counts of an ElasticQuota."""

    LIMITS = "limits"
    DESERVED = "deserved"
    GUARANTEED = "guaranteed"


def _option(variable: str, text: str, **more: Any) -> Any:
    return typer.Option(envvar=f"GANGSHARE_{variable}", help=text, **more)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    def parser(text: str) -> T:
        try:
            return parse(text)
        except (SettingsError, quantity.QuantityError) as error:
            raise typer.BadParameter(str(error)) from error

    return parser


_WHERE: dict[str, Any] = {"parser": _parsed(known.address), "metavar": "HOST:PORT"}
_UNIT: dict[str, Any] = {"parser": _parsed(quantity.memory_unit), "metavar": "UNIT"}
_PRIORITY: dict[str, Any] = {"parser": _parsed(known.group_priority), "metavar": "members|any|NUMBER"}
_MEM = f"GPU memory in units.  [default: {names.GPU_MEM}; with --gpushare {names.ALIYUN_MEM}]"
_PREFIX = "How our scheduler's holderIdentity begins.  [default: this machine's hostname and _]"
_ALL = "Offer all nodes that are about equally good to every pod, not some of them (slower)."
_SCHEDULERS = "Schedulers that ask us, by comma; others' pods count in no gang. Empty: every one."
_RIVALS = "namespace/name, by comma: Leases of schedulers that serve the same names; we wait while one is renewed."
_WEBHOOK = "Puts the scheduling gate on new pods of groups, over TLS. Empty: no webhook."
_OPEN = "Metrics tell everybody whose pods are on which GPUs (gangshare_allocation_info)."
_SECURE = "All pages over TLS, for those for whom the API server vouches. Empty: no such port."
_CLIENT_CA = "Whose certificates kube-scheduler has to show at --listen."
_SLOT = "Seconds for which a lost member's room is kept for the next; 0: not."
_KEEP = "Seconds for which a pod's gangshare.io/reservation keeps room at most; 0: not."
_PREEMPTION = "Evict pods of lower priority for those that wait; takes --keep-room."
_MIN_RUN = "Seconds that a pod or gang runs at least before others take its room."
_GROUP_PRIORITY = "What a PodGroup's PriorityClass gives at most: what one of its members has, any, or this number."
_ELASTIC_QUOTAS = "What counts of ElasticQuotas: limits: max; deserved: min too; guaranteed: also while it is idle."
_SCALE_IN = "Seconds that an elastic job's operator has to let workers go before they are evicted; 0: it is not asked."
_GROW_AFTER = (
    "Seconds for which GPUs must be idle, and nobody wait for them, until an elastic job grows; 0: it does not."
)
_BACKFILL = "Seconds that the first of a queue waits until room is kept for it, which others must not delay; 0: not."
_TIMEOUT = "The scheduler's httpTimeout for bind, in s; a gang's are held half as long at most."
_LARGEST = "Members that start together at most; they must all come into bind in half of the bind timeout."
_LOCALITY = "Labels that say where nodes are, from near to far, by comma: gangs are kept together by them. Empty: not."
_LEAVING = (
    "Taints or labels, KEY or KEY=VALUE, of nodes that are about to go, by comma: they are left in time. Empty: not."
)
_ELECTION = (
    "scheduler: write only while our scheduler holds its Lease; own: by a Lease of our own; none: there is no other."
)


def extender(
    *,
    kubeconfig: Annotated[str, _option("KUBECONFIG", "Credentials; else the service account, else $KUBECONFIG.")] = "",
    listen: Annotated[Address, _option("LISTEN", "For kube-scheduler.", **_WHERE)] = str(DEFAULTS.listen),  # type: ignore[assignment]  # parsed
    verbs_cert: Annotated[str, _option("VERBS_CERT", "TLS there: its certificate.", metavar="FILE")] = "",
    verbs_key: Annotated[str, _option("VERBS_KEY", "The key of that.", metavar="FILE")] = "",
    verbs_client_ca: Annotated[str, _option("VERBS_CLIENT_CA", _CLIENT_CA, metavar="FILE")] = "",
    status_listen: Annotated[Address, _option("STATUS_LISTEN", "Probes, metrics, pages.", **_WHERE)] = str(  # type: ignore[assignment]  # parsed
        DEFAULTS.status_listen
    ),
    open_allocations: Annotated[bool, _option("OPEN_ALLOCATIONS", _OPEN)] = False,
    secure_listen: Annotated[str, _option("SECURE_LISTEN", _SECURE, metavar="HOST:PORT")] = "",
    secure_cert: Annotated[str, _option("SECURE_CERT", "Its certificate, else one made.", metavar="FILE")] = "",
    secure_key: Annotated[str, _option("SECURE_KEY", "The key of that.", metavar="FILE")] = "",
    gate_webhook_listen: Annotated[str, _option("GATE_WEBHOOK_LISTEN", _WEBHOOK, metavar="HOST:PORT")] = "",
    gpushare: Annotated[bool, _option("GPUSHARE", "Serve gpushare's names and paths too.")] = False,
    resource_mem: Annotated[str, _option("RESOURCE_MEM", _MEM, show_default=False)] = "",
    resource_slice: Annotated[str, _option("RESOURCE_SLICE", "Time slices.")] = names.GPU_SLICE,
    resource_whole: Annotated[str, _option("RESOURCE_WHOLE", "Whole GPUs.")] = names.WHOLE_GPU,
    resource_shared: Annotated[str, _option("RESOURCE_SHARED", "Replicas of a GPU.")] = names.SHARED_GPU,
    memory_unit: Annotated[int, _option("MEMORY_UNIT", "GiB, MiB or a multiple like 256MiB.", **_UNIT)] = "GiB",  # type: ignore[assignment]  # parsed
    slices_per_gpu: Annotated[int, _option("SLICES_PER_GPU", "Time slices per GPU.")] = DEFAULTS.slices_per_gpu,
    offer_limit: Annotated[int, _option("OFFER_LIMIT", "Most nodes in a filter answer.")] = DEFAULTS.offer_limit,
    band: Annotated[
        int, _option("BAND", "Nodes that cost so many more thousandths of a GPU are as good.")
    ] = DEFAULTS.band,
    in_tree_preferences: Annotated[bool, _option("IN_TREE_PREFERENCES", _ALL)] = False,
    scheduler_names: Annotated[str, _option("SCHEDULER_NAMES", _SCHEDULERS)] = "",
    rival_leases: Annotated[str, _option("RIVAL_LEASES", _RIVALS)] = "",
    gang_whole: Annotated[float, _option("GANG_WHOLE", "Seconds to finish a started gang.")] = DEFAULTS.whole_s,
    gang_slot: Annotated[float, _option("GANG_SLOT", _SLOT)] = DEFAULTS.slot_s,
    keep_room: Annotated[float, _option("KEEP_ROOM", _KEEP)] = DEFAULTS.keep_s,
    preemption: Annotated[bool, _option("PREEMPTION", _PREEMPTION)] = DEFAULTS.preemption,
    min_run: Annotated[float, _option("MIN_RUN", _MIN_RUN)] = DEFAULTS.min_run_s,
    group_priority: Annotated[int, _option("GROUP_PRIORITY", _GROUP_PRIORITY, **_PRIORITY)] = "members",  # type: ignore[assignment]  # parsed
    elastic_quotas: Annotated[Counted, _option("ELASTIC_QUOTAS", _ELASTIC_QUOTAS)] = Counted.DESERVED,
    scale_in: Annotated[float, _option("SCALE_IN", _SCALE_IN)] = DEFAULTS.scale_in_s,
    grow_after: Annotated[float, _option("GROW_AFTER", _GROW_AFTER)] = DEFAULTS.grow_after_s,
    backfill: Annotated[float, _option("BACKFILL", _BACKFILL)] = DEFAULTS.backfill_s,
    bind_timeout: Annotated[float, _option("BIND_TIMEOUT", _TIMEOUT)] = DEFAULTS.bind_timeout_s,
    largest_gang: Annotated[int, _option("LARGEST_GANG", _LARGEST)] = DEFAULTS.largest_gang,
    locality_labels: Annotated[str, _option("LOCALITY_LABELS", _LOCALITY)] = ",".join(DEFAULTS.locality_labels),
    leaving: Annotated[str, _option("LEAVING", _LEAVING)] = ",".join(DEFAULTS.leaving),
    leader_election: Annotated[Election, _option("LEADER_ELECTION", _ELECTION)] = Election.SCHEDULER,
    lease_name: Annotated[str, _option("LEASE_NAME", "The scheduler's Lease, or our own.")] = DEFAULTS.lease_name,
    lease_namespace: Annotated[str, _option("LEASE_NAMESPACE", "Its namespace.")] = DEFAULTS.lease_namespace,
    lease_identity_prefix: Annotated[str, _option("LEASE_IDENTITY_PREFIX", _PREFIX, show_default=False)] = "",
    renew_deadline: Annotated[float, _option("RENEW_DEADLINE", "The scheduler's, in s.")] = DEFAULTS.renew_deadline_s,
    scheduler_healthz: Annotated[str, _option("SCHEDULER_HEALTHZ", "URL that /livez asks too.")] = "",
    log_format: Annotated[LogFormat, _option("LOG_FORMAT", "auto: console on a terminal, else json.")] = LogFormat.AUTO,
    log_level: Annotated[LogLevel, _option("LOG_LEVEL", "debug shows each filter.")] = LogLevel.INFO,
) -> None:
    """Answer kube-scheduler: which node and which GPUs a pod gets."""
    mem = resource_mem or (names.ALIYUN_MEM if gpushare else names.GPU_MEM)
    try:
        settings = Settings(
            kubeconfig=kubeconfig,
            listen=listen,
            verbs_cert=verbs_cert,
            verbs_key=verbs_key,
            verbs_client_ca=verbs_client_ca,
            status_listen=status_listen,
            open_allocations=open_allocations,
            secure_listen=known.address(secure_listen) if secure_listen else None,
            secure_cert=secure_cert,
            secure_key=secure_key,
            gate_webhook_listen=known.address(gate_webhook_listen) if gate_webhook_listen else None,
            resources=names.Resources(mem=mem, slice=resource_slice, whole=resource_whole, shared=resource_shared),
            unit_mib=memory_unit,
            slices_per_gpu=slices_per_gpu,
            gpushare=gpushare,
            offer_limit=offer_limit,
            band=band,
            in_tree_preferences=in_tree_preferences,
            scheduler_names=_listed(scheduler_names),
            rival_leases=_listed(rival_leases),
            whole_s=gang_whole,
            slot_s=gang_slot,
            keep_s=keep_room,
            preemption=preemption,
            min_run_s=min_run,
            group_priority=group_priority,
            elastic_quotas=elastic_quotas.value,
            scale_in_s=scale_in,
            grow_after_s=grow_after,
            backfill_s=backfill,
            bind_timeout_s=bind_timeout,
            largest_gang=largest_gang,
            locality_labels=_listed(locality_labels),
            leaving=_listed(leaving),
            leader_election=leader_election.value,
            lease_name=lease_name,
            lease_namespace=lease_namespace,
            lease_identity_prefix=lease_identity_prefix,
            renew_deadline_s=renew_deadline,
            scheduler_healthz=scheduler_healthz,
            log_format=log_format.value,
            log_level=log_level.value,
        )
        _run(settings)
    except (SettingsError, CredentialsError) as error:
        typer.echo(f"gangshare extender: {error}", err=True)
        raise typer.Exit(2) from error


def _run(settings: Settings) -> None:
    """Serve until a signal; an error that breaks the process is logged in full and ends it with code 1."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        uvloop.run(run.serve(settings))
    except (SettingsError, CredentialsError):
        raise
    except Exception as error:
        structlog.get_logger(__name__).exception("extender_broke")
        raise typer.Exit(1) from error

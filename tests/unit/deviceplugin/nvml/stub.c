/* A pretended libnvidia-ml.so.1: as much of NVML's C interface as the plugin uses, over a machine of four GPUs.
 *
 * GPUs 0 and 1 are joined by two NVLinks, 2 and 3 hang on a switch with four links each. The environment says what
 * goes wrong: STUB_LOST=<index> falls off the bus, STUB_XID=<index>:<code> is reported once, STUB_HIDE=<name> is a
 * function that answers NOT_SUPPORTED, STUB_SPLIT=<index> is a GPU with MIG devices at 0 and 2. Layouts and numbers are those of nvml.h (NVML API reference, CUDA 13).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       TIMEOUT = 10, GPU_IS_LOST = 15, OPERATING_SYSTEM = 17,
       VERSION_MISMATCH = 25, GPUS = 4, PART = 100 };
typedef int Return;
typedef struct { int index; } *Device;
typedef struct { int waiting; } *EventSet;

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } PciInfo;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned field, scope; long long timestamp, latency; int type; Return status;
                 union { unsigned u; unsigned long long ull; } value; } FieldValue;
typedef struct { Device device; unsigned long long type, data; unsigned gpuInstance, computeInstance; } Event;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpuInstance, computeInstance; } Process;
typedef struct { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; } Use;
typedef struct { unsigned version; unsigned char cluster[16]; Return status; unsigned clique; unsigned char state;
                 unsigned healthMask; } Fabric;
typedef struct { const char *group; unsigned long long soft, hard, used; } MemoryLimits;

typedef struct { const char *group; unsigned long long soft, hard; } NewLimits;
typedef struct { unsigned processors, copy, decoders, encoders, jpeg, ofa, slices, ownSlices;
                 unsigned long long memory; } Attributes;
typedef struct { Device device; unsigned id, profile, start, size; } InstanceInfo;
typedef struct { unsigned version, id, peer, slices, count, processors, copy, decoders, encoders, jpeg, ofa;
                 unsigned long long memory; char name[96]; } ProfileInfo;

static struct { int index; } gpus[GPUS] = {{0}, {1}, {2}, {3}};
static struct { int index; } parts[] = {{PART}, {PART + 1}, {PART + 2}};
static struct { int waiting; } events;
static int started;

static int wish(const char *name) { return getenv(name) && *getenv(name) ? atoi(getenv(name)) : -1; }
static Return state(Device device, const char *function) {
    if (!started) return UNINITIALIZED;
    if (device->index == wish("STUB_LOST")) return GPU_IS_LOST;
    return getenv("STUB_HIDE") && !strcmp(getenv("STUB_HIDE"), function) ? NOT_SUPPORTED : OK;
}
#define ANSWER(device) do { Return said = state(device, __func__); if (said) return said; } while (0)
static void bus(char *text, int index) { sprintf(text, "00000000:%02X:00.0", 0x10 + index); }

Return nvmlInitWithFlags(unsigned flags) { started = 1; return flags; }
Return nvmlShutdown(void) { started = 0; return OK; }
const char *nvmlErrorString(Return error) { return error ? "an error" : "no error"; }

Return nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return started ? OK : UNINITIALIZED; }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    *device = (Device)&gpus[index];
    return OK;
}
Return nvmlDeviceGetUUID(Device device, char *text, unsigned length) {
    ANSWER(device);
    if (device->index < PART) snprintf(text, length, "GPU-00000000-0000-0000-0000-00000000000%d", device->index);
    else snprintf(text, length, "MIG-00000000-0000-0000-0000-00000000000%d", device->index - PART);
    return OK;
}
Return nvmlDeviceGetName(Device device, char *text, unsigned length) {
    ANSWER(device);
    snprintf(text, length, device->index < PART ? "NVIDIA H200" : "NVIDIA H200 MIG 1g.18gb+me");
    return OK;
}
Return nvmlDeviceGetMemoryInfo_v2(Device device, Memory *memory) {
    ANSWER(device);
    if (memory->version != (sizeof *memory | 2 << 24)) return VERSION_MISMATCH;
    memory->total = 143771ull << 20;
    memory->reserved = 771ull << 20;
    return OK;
}
Return nvmlDeviceGetMemoryInfo(Device device, unsigned long long *totalFreeUsed) {
    ANSWER(device);
    totalFreeUsed[0] = 143771ull << 20;
    return OK;
}
Return nvmlDeviceGetMinorNumber(Device device, unsigned *minor) {
    ANSWER(device);
    *minor = 3 - device->index;
    return OK;
}
Return nvmlDeviceGetMaxClockInfo(Device device, int type, unsigned *clock) {
    ANSWER(device);
    *clock = type == 1 ? 1980 : 1;
    return OK;
}
Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    ANSWER(device);
    *major = 9, *minor = 0;
    return OK;
}
Return nvmlDeviceGetMemoryAffinity(Device device, unsigned size, unsigned long *nodes, int scope) {
    ANSWER(device);
    memset(nodes, 0, size * sizeof *nodes);
    nodes[0] = scope == 0 ? 1ul << device->index / 2 : 0;
    return OK;
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *pci) {
    ANSWER(device);
    bus(pci->busId, device->index);
    return OK;
}
Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    ANSWER(device);
    *current = device->index == wish("STUB_SPLIT");
    *pending = *current || device->index == wish("STUB_MIG");
    return OK;
}
Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    ANSWER(device);
    *count = 7;
    return OK;
}
Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *part) {
    ANSWER(device);
    if (device->index != wish("STUB_SPLIT") || index > 2 || index == 1) return NOT_FOUND;
    *part = (Device)&parts[index];
    return OK;
}
Return nvmlDeviceGetAttributes_v2(Device device, Attributes *attributes) {
    ANSWER(device);
    *attributes = (Attributes){16, 1, 1, 0, 1, 0, 1, 1, 16896};
    return OK;
}
Return nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
    ANSWER(device);
    *id = 7 + device->index - PART;
    return OK;
}
Return nvmlDeviceGetComputeInstanceId(Device device, unsigned *id) {
    ANSWER(device);
    *id = 0;
    return OK;
}
Return nvmlDeviceGetGpuInstanceById(Device device, unsigned id, Device *instance) {
    ANSWER(device);
    *instance = (Device)&parts[id - 7];
    return OK;
}
Return nvmlGpuInstanceGetInfo(Device instance, InstanceInfo *info) {
    info->profile = 20;
    return OK;
}
Return nvmlDeviceGetGpuInstanceProfileInfoV(Device device, unsigned profile, ProfileInfo *info) {
    ANSWER(device);
    if (info->version != (sizeof *info | 2 << 24)) return VERSION_MISMATCH;
    if (profile != 7) return NOT_SUPPORTED;
    info->id = 20;
    return OK;
}
Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    ANSWER(device);
    for (int i = 0; i < count; i++) {
        values[i].status = values[i].field == 230 ? OK : NOT_SUPPORTED;
        values[i].value.u = device->index == wish("STUB_RECOVERY");
    }
    return OK;
}
Return nvmlDeviceGetGpuFabricInfoV(Device device, Fabric *fabric) {
    ANSWER(device);
    if (fabric->version != (sizeof *fabric | 2 << 24)) return VERSION_MISMATCH;
    memset(fabric->cluster, 0xab, sizeof fabric->cluster);
    fabric->clique = 7, fabric->state = 3, fabric->status = OK;
    return OK;
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    ANSWER(device);
    if (link >= 18) return INVALID_ARGUMENT;
    *active = link < (device->index < 2 ? 2u : 4u);
    return OK;
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *type) {
    ANSWER(device);
    *type = link < 18 && device->index < 2 ? 0 : 2;
    return OK;
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *pci) {
    ANSWER(device);
    bus(pci->busId, link < 18 && device->index < 2 ? 1 - device->index : 0x70);
    return OK;
}
Return nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, int *level) {
    ANSWER(one);
    *level = one->index / 2 == other->index / 2 ? 20 : 50;
    return OK;
}

/* Memory limits of a driver of branch r615: those of the control group STUB_GROUP, for GPU 1. STUB_LIMIT is in MiB, or
 * an error code if it is negative, -100 for no limit. */
Return nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "%s", getenv("STUB_DRIVER") ? getenv("STUB_DRIVER") : "615.71.05");
    return started ? OK : UNINITIALIZED;
}
Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    int index = uuid[strlen(uuid) - 1] - '0';
    if (index < 0 || index >= GPUS) return NOT_FOUND;
    *device = (Device)&gpus[index];
    return OK;
}
#ifndef BEFORE_R615
Return nvmlDeviceGetMemoryLimits_v1(Device device, MemoryLimits *limits) {
    ANSWER(device);
    int limit = wish("STUB_LIMIT");
    if (!getenv("STUB_GROUP") || strcmp(limits->group, getenv("STUB_GROUP"))) return OPERATING_SYSTEM;
    if (device->index != 1) return NOT_FOUND;
    if (limit < 0 && limit != -100) return -limit;
    limits->soft = limit < 0 ? 0 : (unsigned long long)limit << 20;
    limits->hard = limit < 0 ? ~0ull : (unsigned long long)limit << 20;
    limits->used = 7ull << 20;
    return OK;
}
/* STUB_SET: the error code of setting. A limit that is set is what is told from then on. */
Return nvmlDeviceSetMemoryLimits_v1(Device device, NewLimits *limits) {
    char text[24];
    ANSWER(device);
    if (wish("STUB_SET") > 0) return wish("STUB_SET");
    if (!getenv("STUB_GROUP") || strcmp(limits->group, getenv("STUB_GROUP"))) return OPERATING_SYSTEM;
    if (limits->soft > limits->hard || limits->hard > 143771ull << 20) return INVALID_ARGUMENT;
    sprintf(text, "%llu", limits->hard >> 20);
    setenv("STUB_LIMIT", text, 1);
    return OK;
}
#endif
/* Process 1000 + index computes, and draws; 2000 + index is a client of MPS, of which no memory is told. Of GPU 3 there
 * is none. STUB_GROWS: the list is longer when it is read than when its length was asked for, as often as that says. */
static Return list(Device device, unsigned *count, Process *found, unsigned pid, unsigned long long memory) {
    unsigned length = device->index < 3 ? 1 : 0, room = *count;
    *count = length;
    if (!length) return OK;
    if (!found || room < length) return INSUFFICIENT_SIZE;
    if (wish("STUB_GROWS") > 0) {
        char left[16];
        sprintf(left, "%d", wish("STUB_GROWS") - 1);
        setenv("STUB_GROWS", left, 1);
        return INSUFFICIENT_SIZE;
    }
    found[0] = (Process){pid + device->index, memory, ~0u, ~0u};
    return OK;
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    ANSWER(device);
    return list(device, count, found, 1000, 300ull << 20);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, Process *found) {
    ANSWER(device);
    return list(device, count, found, 1000, 200ull << 20);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    ANSWER(device);
    return list(device, count, found, 1000, 310ull << 20);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    ANSWER(device);
    return list(device, count, found, 2000, ~0ull);
}
Return nvmlDeviceGetProcessUtilization(Device device, Use *found, unsigned *count, unsigned long long since) {
    ANSWER(device);
    if (device->index == 2) return NOT_FOUND;
    if (device->index == 3) { *count = 0; return OK; }
    if (!found || *count < 2) { *count = 2; return INSUFFICIENT_SIZE; }
    *count = 2;
    found[0] = (Use){1000 + device->index, since + 5, 40, 1, 2, 3};
    found[1] = (Use){2000 + device->index, since + 5, 3000000, 1, 2, 3};
    return OK;
}

Return nvmlEventSetCreate(EventSet *set) { *set = (EventSet)&events; return OK; }
Return nvmlEventSetFree(EventSet set) { set->waiting = 0; return OK; }
Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set) {
    ANSWER(device);
    set->waiting |= types == 8 ? 1 << device->index : 0;
    return OK;
}
Return nvmlEventSetWait_v2(EventSet set, Event *event, unsigned milliseconds) {
    int index, code;
    const char *wanted = getenv("STUB_XID");
    if (!wanted || sscanf(wanted, "%d:%d", &index, &code) != 2 || !(set->waiting & 1 << index) || milliseconds > 60000)
        return TIMEOUT;
    unsetenv("STUB_XID");
    event->device = (Device)&gpus[index];
    event->type = 8, event->data = code;
    event->gpuInstance = event->computeInstance = ~0u;
    if (index == wish("STUB_SPLIT")) event->gpuInstance = 9, event->computeInstance = 0;
    return OK;
}

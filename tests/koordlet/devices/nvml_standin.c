/* Stand-in for libnvidia-ml.so.1: answers the calls of koordlet/devices/nvml.py for a machine that a test describes. */

#include <stdio.h>
#include <string.h>

#define SUCCESS 0
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define TIMEOUT 10
#define GPU_IS_LOST 15
#define MAX_GPUS 16
#define MAX_USERS 16
#define XID_EVENT 8ULL

typedef unsigned int u32;
typedef unsigned long long u64;

struct user { u32 gpu, pid, busy; u64 bytes, stamp_us; };
struct gpu { u64 bytes, used; u32 busy, lost, linked, watched; };

static struct gpu gpus[MAX_GPUS];
static struct user users[MAX_USERS];
static u32 gpu_count, user_count, driver_missing, utilization_missing;
static struct { u32 gpu, xid; } events[MAX_USERS];
static u32 event_count, event_next;
static int open_count;

/* What a test sets. */

void standin_reset(u32 count, u64 bytes)
{
	memset(gpus, 0, sizeof(gpus));
	gpu_count = count;
	user_count = event_count = event_next = driver_missing = utilization_missing = 0;
	for (u32 i = 0; i < MAX_GPUS; i++)
		gpus[i].bytes = bytes;
}

void standin_driver_missing(void) { driver_missing = 1; }
void standin_utilization_missing(void) { utilization_missing = 1; }
void standin_lose(u32 gpu, u32 lost) { gpus[gpu].lost = lost; }
void standin_link(u32 gpu, u32 mask) { gpus[gpu].linked = mask; }
void standin_busy(u32 gpu, u32 percent, u64 used) { gpus[gpu].busy = percent; gpus[gpu].used = used; }
int standin_open_count(void) { return open_count; }

void standin_process(u32 gpu, u32 pid, u32 percent, u64 bytes, u64 stamp_us)
{
	users[user_count++] = (struct user){ gpu, pid, percent, bytes, stamp_us };
}

void standin_xid(u32 gpu, u32 xid)
{
	events[event_count].gpu = gpu;
	events[event_count++].xid = xid;
}

/* NVML. */

struct memory { u64 total, free, used; };
struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
struct rates { u32 gpu, memory; };
struct process { u32 pid; u64 bytes; u32 instance, compute_instance; };
struct sample { u32 pid; u64 stamp_us; u32 sm, memory, encoder, decoder; };
struct event { struct gpu *gpu; u64 type, data; u32 instance, compute_instance; };

static u32 index_of(struct gpu *gpu) { return (u32)(gpu - gpus); }

int nvmlInitWithFlags(u32 flags)
{
	if (driver_missing)
		return DRIVER_NOT_LOADED;
	open_count++;
	return SUCCESS;
}

int nvmlShutdown(void) { open_count--; return SUCCESS; }
const char *nvmlErrorString(int code) { return "stand-in error"; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, struct gpu **gpu)
{
	if (gpus[index].lost)
		return GPU_IS_LOST;
	*gpu = &gpus[index];
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, u32 size) { snprintf(text, size, "550.54.15"); return SUCCESS; }

int nvmlDeviceGetUUID(struct gpu *gpu, char *text, u32 size)
{
	snprintf(text, size, "GPU-%08u-0000-0000-0000-000000000000", index_of(gpu));
	return SUCCESS;
}

int nvmlDeviceGetName(struct gpu *gpu, char *text, u32 size) { snprintf(text, size, "NVIDIA A100-SXM4-80GB"); return SUCCESS; }
int nvmlDeviceGetMinorNumber(struct gpu *gpu, u32 *minor) { *minor = index_of(gpu); return SUCCESS; }

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory)
{
	if (gpu->lost)
		return GPU_IS_LOST;
	*memory = (struct memory){ gpu->bytes, gpu->bytes - gpu->used, gpu->used };
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = 0x3a + index_of(gpu);
	snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus);
	return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, struct rates *rates)
{
	if (gpu->lost)
		return GPU_IS_LOST;
	*rates = (struct rates){ gpu->busy, 0 };
	return SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct gpu *one, struct gpu *other, u32 capability, u32 *status)
{
	*status = capability == 2 && (one->linked >> index_of(other) & 1) ? 0 : 5;
	return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, u32 *count, struct process *found)
{
	u32 size = *count, used = 0;

	for (u32 i = 0; i < user_count; i++) {
		if (users[i].gpu != index_of(gpu))
			continue;
		if (used < size)
			found[used] = (struct process){ users[i].pid, users[i].bytes, 0, 0 };
		used++;
	}
	*count = used;
	return used > size ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetProcessUtilization(struct gpu *gpu, struct sample *found, u32 *count, u64 since_us)
{
	u32 size = *count, used = 0;

	if (utilization_missing)
		return NOT_SUPPORTED;
	for (u32 i = 0; i < user_count; i++) {
		if (users[i].gpu != index_of(gpu) || users[i].stamp_us <= since_us)
			continue;
		if (used < size)
			found[used] = (struct sample){ users[i].pid, users[i].stamp_us, users[i].busy, 0, 0, 0 };
		used++;
	}
	*count = used;
	if (!used)
		return NOT_FOUND;
	return used > size ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlEventSetCreate(void **set) { *set = events; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }

int nvmlDeviceRegisterEvents(struct gpu *gpu, u64 types, void *set)
{
	gpu->watched = types & XID_EVENT ? 1 : 0;
	return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *event, u32 timeout_ms)
{
	while (event_next < event_count && !gpus[events[event_next].gpu].watched)
		event_next++;
	if (event_next == event_count)
		return TIMEOUT;
	*event = (struct event){ &gpus[events[event_next].gpu], XID_EVENT, events[event_next].xid, 0, 0 };
	event_next++;
	return SUCCESS;
}

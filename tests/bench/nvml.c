/* A library of NVML with two GPUs that draw 100 W and 300 W and count their energy from 1970 on. */
#include <time.h>
typedef struct { unsigned int gpu, memory; } Use;
static int gpus[2] = {100, 300};
static int all(void) { return 0; }
int nvmlInit_v2(void) { return all(); }
int nvmlInitWithFlags(unsigned int flags) { return flags ? 0 : all(); }
int nvmlShutdown(void) { return all(); }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int n, void **handle) { *handle = &gpus[n]; return 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned int size) {
  const char text[] = "NVIDIA Test";
  for (unsigned int n = 0; n < sizeof text && n < size; n++) name[n] = text[n];
  return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned int *mw) { *mw = *(int *)handle * 1000; return 0; }
int nvmlDeviceGetUtilizationRates(void *handle, Use *use) { use->gpu = *(int *)handle / 5; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
#ifdef NO_COUNTERS
  return 3; /* not supported */
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *mj = (unsigned long long)((now.tv_sec + now.tv_nsec / 1e9) * *(int *)handle * 1000);
  return 0;
#endif
}

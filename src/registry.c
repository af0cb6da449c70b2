/* The back ends of this build, one line each. */
#include "cpu/cpu.h"
#include "gpu/cuda/cuda.h"

const dg_backend *const dg_backends[] = {
    &dg_cpu_backend,
    &dg_cuda_backend,
};
const int dg_backend_count = sizeof dg_backends / sizeof dg_backends[0];

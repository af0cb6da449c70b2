/* The back ends of this build, one line each. */
#include "cpu/cpu.h"
#include "gpu/cuda/cuda.h"
#include "gpu/hip/hip.h"
#include "gpu/musa/musa.h"
#include "opencl/opencl.h"

const dg_backend *const dg_backends[] = {
    &dg_cpu_backend, &dg_cuda_backend, &dg_musa_backend, &dg_hip_backend, &dg_opencl_backend,
};
const int dg_backend_count = sizeof dg_backends / sizeof dg_backends[0];

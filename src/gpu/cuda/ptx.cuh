/* Thin wrappers of the sm_90a instructions without a CUDA C++ spelling. One instruction each; the
 * names follow the PTX manual. Shared memory is addressed by its 32-bit offset (dg_shared). */
#ifndef DETGEMM_PTX_CUH
#define DETGEMM_PTX_CUH

#include <cuda.h>
#include <stdint.h>

#define DG_DEVICE __device__ __forceinline__

DG_DEVICE uint32_t dg_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

DG_DEVICE void dg_shared_store(uint32_t to, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}

DG_DEVICE void dg_shared_store(uint32_t to, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}

DG_DEVICE float2 dg_shared_load2(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

DG_DEVICE float4 dg_shared_load4(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

/* mbarrier: a phase ends when `count` arrivals and all expected bytes are in. */
DG_DEVICE void dg_barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Makes inits visible to the cluster and to the copy engine. */
DG_DEVICE void dg_barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
}

DG_DEVICE void dg_barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

DG_DEVICE void dg_barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the barrier of the same offset in block `rank` of the cluster. Orders nothing but what
 * the block itself did: a release at cluster scope would be a fence to the L2. */
DG_DEVICE void dg_barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/* Waits for the end of the phase of this parity. */
DG_DEVICE void dg_barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/* Named barriers of the block: some threads arrive, others wait, `threads` in all. */
DG_DEVICE void dg_named_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

DG_DEVICE void dg_named_wait(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

/* Makes this thread's ordinary stores to shared memory visible to wgmma and the copy engine, once a
 * barrier has followed. */
DG_DEVICE void dg_shared_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* TMA: a box of a rank-3 tensor map to shared memory, its bytes counted by `barrier`. */
DG_DEVICE void dg_tma_prefetch(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

DG_DEVICE void dg_tma_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                           int32_t y, int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/* The same to every block of the cluster whose bit is set in `blocks`, at the same offsets. */
DG_DEVICE void dg_tma_multicast(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                                int32_t y, int32_t z, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

/* Clusters. */
DG_DEVICE uint32_t dg_cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

DG_DEVICE void dg_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DG_DEVICE void dg_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Programmatic dependent launch: nothing of the previous kernel's may be touched before wait(). */
DG_DEVICE void dg_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

DG_DEVICE void dg_dependents_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Registers per thread; all warps of a warpgroup call it. */
template <int COUNT>
DG_DEVICE void dg_registers_raise() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
DG_DEVICE void dg_registers_lower() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* One lane of the warp, the same every time; the compiler knows then that it is alone. */
DG_DEVICE bool dg_elect() {
  uint32_t elected;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(elected));
  return elected != 0;
}

/* The 8x8 matrix of 16-bit elements spread over a warp, two a lane, transposed. */
DG_DEVICE uint32_t dg_matrix_transpose(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

#endif

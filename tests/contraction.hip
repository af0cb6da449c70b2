/* A product that is added to, which must stay two operations, and one that is fused. */
extern "C" __attribute__((global)) void separate(float *x, float a, float b) { *x = a * b + *x; }
extern "C" __attribute__((global)) void fused(float *x, float a, float b) {
  *x = __builtin_fmaf(a, b, *x);
}

/* Multiplies in C with the installed header and library. Prints nothing where all is well. */
#include <detgemm.h>
#include <stdio.h>

int main(void) {
  const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, want[] = {19, 22, 43, 50};
  float c[4] = {0};
  dg_device *cpu;
  if (dg_abi() != DG_ABI) return 1;
  if (dg_device_open("cpu", &cpu) != DG_OK ||
      dg_forward(cpu, NULL, DG_ORDER_FMA, dg_row_major(a, DG_F32, 2, 2),
                 dg_row_major(b, DG_F32, 2, 2), dg_row_major(c, DG_F32, 2, 2)) != DG_OK) {
    fprintf(stderr, "%s\n", dg_last_error());
    return 1;
  }
  dg_device_close(cpu);
  for (int i = 0; i < 4; i++)
    if (c[i] != want[i]) return 1;
  return 0;
}

/* A libFuzzer target: any bytes as a safetensors file. */
#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[TENSOR_WHY];
  tensor t;
  static const char *const names[] = {NULL, "a"};
  for (int i = 0; i < 2; i++) {
    if (!safetensors_find(data, size, names[i], &t, why)) continue;
    /* What the reader accepts must be inside the file: touch both ends. */
    const int64_t count = tensor_count(&t);
    if (count > 0) (void)(tensor_bits(&t, 0) + tensor_bits(&t, count - 1));
  }
  return 0;
}

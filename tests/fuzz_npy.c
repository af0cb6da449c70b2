/* A libFuzzer target: any bytes as an npy file. */
#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[TENSOR_WHY];
  tensor t;
  if (npy_read(data, size, true, &t, why)) {
    /* What the reader accepts must be inside the file: touch both ends. */
    const int64_t count = tensor_count(&t);
    if (count > 0) (void)(tensor_bits(&t, 0) + tensor_bits(&t, count - 1));
  }
  return 0;
}

// Multiplies in C++ with the installed header and library.
#include <detgemm.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>

int main() {
  const std::array<std::uint16_t, 2> a{0x4000, 0xbf80};  // 2, -1
  const std::array<std::uint16_t, 2> b{0x4040, 0x3f80};  // 3, 1
  std::uint16_t c = 0;
  dg_device *opened = nullptr;
  if (dg_device_open("cpu:0", &opened) != DG_OK) {
    std::fprintf(stderr, "%s\n", dg_last_error());
    return 1;
  }
  const std::unique_ptr<dg_device, decltype(&dg_device_close)> cpu(opened, dg_device_close);
  dg_gemm_args args = dg_gemm_args_init();
  args.order = DG_ORDER_TC16;
  args.a = dg_row_major(a.data(), DG_BF16, 1, 2);
  args.b = dg_transposed(dg_row_major(b.data(), DG_BF16, 1, 2));
  args.out = dg_row_major(&c, DG_BF16, 1, 1);
  return dg_gemm(cpu.get(), &args) == DG_OK && c == 0x40a0 ? 0 : 1;  // 5
}

#!/usr/bin/env python3
"""Reads the machine code of the portable kernels and checks its arithmetic, without a device.

  device_code.py amdgcn IMAGE OBJDUMP SOURCE COMPILER...   a bundle for AMD and how it was compiled
  device_code.py ptx FILE                                  clang's PTX of one architecture or several

amdgcn: every instruction that multiplies, adds or fuses must stand for one of the source's: the
compiler's own intermediate code, made by COMPILER ... SOURCE, says how many there are and that none
may be contracted. The kernels must ask for rounding to nearest and for subnormal numbers. A small
kernel with the product and the sum of tests/contraction.hip goes through the same compiler.
ptx: every operation must carry its rounding, or the assembler may fuse it, and none may flush."""

import collections
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
NEAREST, KEEP = 0, 3


def fail(text):
    sys.exit(f"failed: {text}")


def bundle_entries(data):
    """The device images of a bundle by architecture."""
    if not data.startswith(BUNDLE):
        fail("the image is no offload bundle")
    at = len(BUNDLE) + 8
    for _ in range(*struct.unpack_from("<Q", data, len(BUNDLE))):
        offset, size, length = struct.unpack_from("<3Q", data, at)
        name = data[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if size:
            yield name.rsplit("-", 1)[1], data[offset : offset + size]


def kernel_descriptors(elf):
    """Kernel name and register word 1 of each kernel descriptor in an ELF file."""
    (section_table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, _ = struct.unpack_from("<3H", elf, 0x3A)
    headers = [struct.unpack_from("<2I4Q2I2Q", elf, section_table + i * size) for i in range(count)]
    for kind, link, offset, length in ((h[1], h[6], h[4], h[5]) for h in headers):
        if kind != 11:  # SHT_DYNSYM
            continue
        for at in range(offset, offset + length, 24):
            name_at, _, section, value = struct.unpack_from("<IHHQ", elf, at)
            start = headers[link][4] + name_at
            name = elf[start : elf.index(b"\0", start)].decode()
            if name.endswith(".kd"):
                place = headers[section][4] + value - headers[section][3]
                yield name[:-3], struct.unpack_from("<I", elf, place + 48)[0]


def check_modes(arch, elf):
    kernels = dict(kernel_descriptors(elf))
    if not kernels:
        fail(f"{arch}: no kernel descriptor was found")
    for name, word in kernels.items():
        if (word >> 12) & 3 != NEAREST or (word >> 16) & 3 != KEEP:
            fail(f"{arch}: {name} does not round FP32 to nearest and keep subnormals ({word:#x})")
    return len(kernels)


def expected(code):
    """How often the intermediate code multiplies, adds and fuses floats; nothing else is allowed."""
    counts = collections.Counter()
    for line in code.splitlines():
        if line.startswith(("declare", ";", "attributes", "!")):
            continue
        if re.search(r"= f(neg|sub|div|rem)\b|llvm\.(fmuladd|sqrt|amdgcn\.rcp)", line):
            fail(f"an operation that the order does not know: {line.strip()}")
        found = re.search(r"= (?:tail )?f(mul|add) (.*?)(<2 x float>|float|half|double)", line)
        fused = re.search(r"@llvm\.fma\.(v2f32|f32|\w+)\(", line)
        if found and (found[2] or found[3] not in ("float", "<2 x float>")):
            fail(f"not plain FP32: {line.strip()}")
        if found:
            counts[found[1]] += 2 if found[3] != "float" else 1
        elif fused:
            counts["fma"] += {"f32": 1, "v2f32": 2}[fused[1]]
    return counts


def found_in(text):
    """The same for instructions. `division` counts the 64-bit integer ones, which use floats."""
    counts = collections.Counter()
    for name in re.findall(r"\bv_(?:dual_)?([a-z0-9_]+)", text):
        if "f32" not in name or name.startswith(("cvt", "cmp")):
            continue
        base = re.sub(r"_e(32|64)(_dpp)?$", "", name).removeprefix("pk_")
        width = 2 if name.startswith("pk_") else 1
        kind = {"mul_f32": "mul", "add_f32": "add", "fma_f32": "fma", "fmac_f32": "fma"}.get(base)
        kind = kind or {"fmaak_f32": "fma", "fmamk_f32": "fma", "trunc_f32": "division"}.get(base)
        kind = kind or {"rcp_f32": "rcp", "rcp_iflag_f32": "rcp", "mac_f32": "mac"}.get(base)
        if kind is None:
            fail(f"an instruction that the order does not know: v_{name}")
        counts[kind] += width
    return counts


def compare(arch, want, have):
    """Integer divisions go through a reciprocal and a multiplication; 64-bit ones take another
    multiplication and two multiply-adds, which may be v_mac there, of integers. The compiler joins
    equal blocks late, so there may be fewer fused ones; a contraction or a split would show in the
    additions."""
    divisions = have["division"]
    wanted = {"mul": want["mul"] + have["rcp"] + divisions, "add": want["add"]}
    got = {"mul": have["mul"], "add": have["add"]}
    fused = have["fma"] + have["mac"] <= want["fma"] + 2 * divisions
    if have["mac"] not in (0, 2 * divisions) or not fused or wanted != got:
        fail(f"{arch}: {dict(have)} does not stand for {dict(want)}")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def check_code(arch, objdump, elf_file, source, compiler):
    intermediate = elf_file.with_suffix(".ll")
    run([*compiler, f"--offload-arch={arch}", "-S", "-emit-llvm", "-o", intermediate, source])
    want, have = expected(intermediate.read_text()), found_in(run([objdump, "-d", elf_file]))
    compare(arch, want, have)
    return want


def check_small(arch, objdump, elf_file, compiler, *flags):
    """A source that flags could change, unlike the kernels', by the same compiler."""
    source = pathlib.Path(__file__).with_name("contraction.hip")
    flags = [*flags, f"--offload-arch={arch}", "--no-gpu-bundle-output", "-c"]
    run([*compiler, *flags, "-o", elf_file, source])
    check_modes(arch, elf_file.read_bytes())
    if check_code(arch, objdump, elf_file, source, compiler) != {"mul": 1, "add": 1, "fma": 1}:
        fail(f"{arch}: {source.name} has other operations than its source")


def check_that_it_fails(*arguments):
    """The checks above must notice each of these flags."""
    for flag in ("-ffp-contract=fast", "-fgpu-flush-denormals-to-zero", "-ffast-math"):
        try:
            check_small(*arguments, flag)
        except SystemExit:
            continue
        fail(f"{flag} went unnoticed")


def check_amdgcn(image, objdump, source, *compiler):
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        elf_file = pathlib.Path(folder) / "kernels.elf"
        for arch, elf in bundle_entries(pathlib.Path(image).read_bytes()):
            elf_file.write_bytes(elf)
            kernels = check_modes(arch, elf)
            counts = check_code(arch, objdump, elf_file, source, compiler)
            check_small(arch, objdump, elf_file, compiler)
            check_that_it_fails(arch, objdump, elf_file, compiler)
            print(f"{arch}: {kernels} kernels, operations in the code: {dict(counts)}")
            checked += 1
    if checked == 0:
        fail("the bundle holds no device image")


def check_ptx(file):
    counts = collections.Counter()
    text = pathlib.Path(file).read_text()
    for operation, rest in re.findall(r"^\s*([a-z]+)((?:\.[a-z0-9]+)*\.f32)\s", text, re.M):
        if operation in ("fma", "mul", "add", "sub", "div", "mad", "sqrt", "rcp"):
            counts[operation + rest] += 1
    print(dict(counts))
    if set(counts) != {"fma.rn.f32", "mul.rn.f32", "add.rn.f32"}:
        fail("other operations than fma, mul and add, or one without its rounding")


if __name__ == "__main__":
    checks = {"amdgcn": check_amdgcn, "ptx": check_ptx}
    if len(sys.argv) < 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    checks[sys.argv[1]](*sys.argv[2:])

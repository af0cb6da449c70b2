"""The few CUDA driver calls that arrays of unknown libraries need, through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_library: Optional[Any] = None


def _driver() -> Any:
    global _library  # noqa: PLW0603
    if _library is None:
        library = ctypes.CDLL("libcuda.so.1")
        if library.cuInit(0) != 0:
            raise RuntimeError("the CUDA driver does not start (cuInit)")
        _library = library
    return _library


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"CUDA driver error {status} in {what}")


def device_of_pointer(address: int) -> int:
    """The number of the device that memory belongs to."""
    ordinal = ctypes.c_int(0)
    if address:
        status = _driver().cuPointerGetAttribute(
            ctypes.byref(ordinal), _DEVICE_ORDINAL, ctypes.c_uint64(address)
        )
        _check(status, "cuPointerGetAttribute")
    return ordinal.value


class Context:
    """A device's primary context, current on this thread for as long as the block lasts."""

    def __init__(self, index: int) -> None:
        self._device = ctypes.c_int(0)
        self._context = ctypes.c_void_p()
        driver = _driver()
        _check(driver.cuDeviceGet(ctypes.byref(self._device), index), "cuDeviceGet")
        status = driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), self._device)
        _check(status, "cuDevicePrimaryCtxRetain")

    def __enter__(self) -> Context:
        _check(_driver().cuCtxPushCurrent_v2(self._context), "cuCtxPushCurrent")
        return self

    def __exit__(self, *_: object) -> None:
        previous = ctypes.c_void_p()
        driver = _driver()
        _check(driver.cuCtxPopCurrent_v2(ctypes.byref(previous)), "cuCtxPopCurrent")
        driver.cuDevicePrimaryCtxRelease_v2(self._device)

    def upload(self, address: int, size: int) -> int:
        """A copy of host memory on the device."""
        pointer = ctypes.c_uint64(0)
        driver = _driver()
        _check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))), "cuMemAlloc")
        status = driver.cuMemcpyHtoD_v2(pointer, ctypes.c_void_p(address), ctypes.c_size_t(size))
        _check(status, "cuMemcpyHtoD")
        return pointer.value

    def download(self, pointer: int, address: int, size: int) -> None:
        """Waits for the device and copies back to host memory."""
        _check(_driver().cuCtxSynchronize(), "cuCtxSynchronize")
        status = _driver().cuMemcpyDtoH_v2(
            ctypes.c_void_p(address), ctypes.c_uint64(pointer), ctypes.c_size_t(size)
        )
        _check(status, "cuMemcpyDtoH")

    def release(self, pointer: int) -> None:
        """Frees memory made by upload."""
        _driver().cuMemFree_v2(ctypes.c_uint64(pointer))


def synchronize(index: int, stream: int) -> None:
    """Waits for all work on a stream."""
    with Context(index):
        _check(_driver().cuStreamSynchronize(ctypes.c_void_p(stream)), "cuStreamSynchronize")

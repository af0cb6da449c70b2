from typing import Any, Optional

View = Optional[tuple[int, int, int, int, int, int, int]]

version: str
abi: int

class Device:
    def __new__(cls, name: str) -> Device: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    def gemm(
        self,
        order: int,
        batch: int,
        stream: int,
        a: View,
        b: View,
        out: View,
        start: View,
        bias: View,
        /,
    ) -> None: ...
    def kernel(
        self,
        order: int,
        batch: int,
        stream: int,
        a: View,
        b: View,
        out: View,
        start: View,
        bias: View,
        /,
    ) -> str: ...
    def grouped(
        self,
        order: int,
        split: int,
        groups: int,
        offsets: int,
        offset_bytes: int,
        stream: int,
        a: View,
        b: View,
        out: View,
        start: View,
        bias: View,
        /,
    ) -> None: ...
    def kernels(self) -> list[tuple[str, int, Optional[str]]]: ...
    def set_threads(self, count: int, /) -> None: ...

class Tensors:
    def __new__(cls, *given: Any) -> Tensors: ...
    def state(self, *tensors: Any) -> int: ...
    def product(
        self,
        device: Device,
        stream: int,
        order: int,
        a: Any,
        b: Any,
        flags: int,
        bias: Any,
        fp32: bool,
        /,
    ) -> Any: ...

def reference(
    order: int, batch: int, stream: int, a: View, b: View, out: View, start: View, bias: View, /
) -> None: ...
def device_names() -> list[str]: ...
def read_dlpack(
    capsule: object, /
) -> tuple[int, int, int, int, int, int, tuple[int, ...], Optional[tuple[int, ...]]]: ...

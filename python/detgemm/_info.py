"""What this machine offers."""

from __future__ import annotations

import os
from typing import Any

from detgemm import _core, _devices, _orders

PLATFORMS = ("cpu", "cuda", "musa", "hip", "opencl")
VARIABLES = ("DETGEMM_ORDER", "DETGEMM_CPU", "DETGEMM_KERNEL")


def _device(name: str) -> dict[str, Any]:
    try:
        device = _devices.handle(name)
    except (RuntimeError, ValueError) as error:
        return {"name": name, "available": False, "reason": str(error)}
    kernels = [
        {"name": kernel, "order": _orders.NAMES[code], "withheld": withheld}
        for kernel, code, withheld in device.kernels()
    ]
    return {
        "name": device.name,
        "available": True,
        "description": device.description,
        "kernels": kernels,
    }


def info() -> dict[str, Any]:
    """Version, default order, environment, and every device with its kernels, or why it is not
    there."""
    names = _core.device_names()
    for platform in PLATFORMS:
        if not any(name.partition(":")[0] == platform for name in names):
            names.append(platform)
    return {
        "version": _core.version,
        "abi": _core.abi,
        "default_order": _orders.get_default_order(),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "devices": [_device(name) for name in names],
    }


def describe() -> str:
    """info() as text."""
    found = info()
    lines = [f"detgemm {found['version']}, ABI {found['abi']}, default order {found['default_order']}"]
    lines += [f"{name}={value} is set" for name, value in found["environment"].items()]
    for device in found["devices"]:
        if not device["available"]:
            lines.append(f"{device['name']:<8}  not available: {device['reason']}")
            continue
        lines.append(f"{device['name']:<8}  {device['description']}")
        for kernel in device["kernels"]:
            state = "ready" if kernel["withheld"] is None else f"withheld: {kernel['withheld']}"
            lines.append(f"  {kernel['order']:<5} {kernel['name']:<24} {state}")
    return "\n".join(lines)

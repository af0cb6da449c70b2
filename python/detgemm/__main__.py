"""python -m detgemm: what this machine offers, and whether its bits are right."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Optional

from detgemm import _core, compare, info, verify
from detgemm._info import describe


def _load(path: str) -> Any:
    import numpy as np

    array = np.load(path, allow_pickle=False)
    return array.view(np.uint16) if array.dtype.str == "|V2" else array


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m detgemm", description=__doc__)
    parser.add_argument("--version", action="version", version=f"detgemm {_core.version}")
    commands = parser.add_subparsers(dest="command")
    command = commands.add_parser("info", help="devices and their kernels (the default)")
    command.add_argument("--json", action="store_true", help="machine-readable")
    command = commands.add_parser("verify", help="every kernel against the definition")
    command.add_argument("--device", help="only this one: cpu, cuda:0, ...")
    command = commands.add_parser("compare", help="two .npy files bit for bit (uint16: BF16 bits)")
    command.add_argument("x")
    command.add_argument("y")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """0: good; 1: bits differ; 2: bad input."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "verify":
            found = verify(options.device)
            print(found)
            return 0 if found else 1
        if options.command == "compare":
            result = compare(_load(options.x), _load(options.y))
            print(result)
            return 0 if result else 1
        print(json.dumps(info(), indent=2) if getattr(options, "json", False) else describe())
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"detgemm: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

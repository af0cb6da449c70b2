"""Matrix products whose bits are defined by a written order.

The same bits for every batch size, thread count, layout and device. ``matmul`` and the named
operations take arrays of any library; ``detgemm.torch`` holds what PyTorch needs.
"""

from detgemm._compare import Comparison, compare
from detgemm._core import version as __version__
from detgemm._info import info
from detgemm._operations import forward, forward_nt, grad_a, grad_b, grad_b_t, matmul
from detgemm._orders import get_default_order, set_default_order
from detgemm._verify import Check, Verification, verify

__all__ = [
    "Check",
    "Comparison",
    "Verification",
    "__version__",
    "compare",
    "forward",
    "forward_nt",
    "get_default_order",
    "grad_a",
    "grad_b",
    "grad_b_t",
    "info",
    "matmul",
    "set_default_order",
    "verify",
]

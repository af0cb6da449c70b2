"""Processes that stand for ranks. They are forked from one that has imported everything."""

import multiprocessing
import os
import socket
import time
import traceback
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["detgemm.torch.parallel", "pytest", "torch._dynamo"])


class Outcome(NamedTuple):
    """How a rank ended: its error ("" for none, None where it said nothing) and after how long."""

    error: object
    seconds: float


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _work(rank, ranks, method, timeout, pipe, function, arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=method, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
    )
    begin = time.monotonic()
    try:
        function(rank, ranks, *arguments)
        dist.barrier()
        error = ""
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
        if not isinstance(e, RuntimeError):
            error += "\n" + traceback.format_exc()
    pipe.send(Outcome(error, time.monotonic() - begin))
    os._exit(0)  # without a word to the others, as a process that ends with an error


def outcomes(function, ranks, *arguments, timeout=60, limit=120, without=None):
    """What became of each rank that ran function(rank, ranks, *arguments). The rank `without` is not
    waited for."""
    method = f"tcp://127.0.0.1:{_free_port()}"
    started = []
    for rank in range(ranks):
        mine, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(
            target=_work, args=(rank, ranks, method, timeout, theirs, function, arguments)
        )
        process.start()
        theirs.close()
        started.append((process, mine))
    end = time.monotonic() + limit
    results = []
    for rank, (_, pipe) in enumerate(started):
        if rank == without:
            results.append(Outcome(None, 0.0))
            continue
        try:
            said = pipe.recv() if pipe.poll(max(0, end - time.monotonic())) else Outcome(None, limit)
        except EOFError:
            said = Outcome(None, 0.0)
        results.append(said)
    for process, _ in started:
        process.kill()
        process.join()
    return results


def run(function, ranks, *arguments):
    """Runs function(rank, ranks, *arguments) on every rank; an error on one is an error."""
    for rank, outcome in enumerate(outcomes(function, ranks, *arguments)):
        assert outcome.error == "", f"rank {rank} of {ranks}: {outcome.error}"

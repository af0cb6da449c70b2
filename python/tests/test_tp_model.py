"""A small transformer whose linear layers are all split over ranks: logits, gradients and weights have
one bit pattern for 1, 2, 3 and 4 ranks, for any batch size, in both orders."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from ranks import run  # noqa: E402
from torch import nn  # noqa: E402

import detgemm.torch as dt  # noqa: E402
from detgemm.torch import _ranks, parallel  # noqa: E402

BF16 = torch.bfloat16
VOCABULARY, WIDTH, HEADS, HEAD, HIDDEN, LAYERS, TOKENS = 101, 52, 5, 16, 70, 2, 9
STEPS = 4


def same(x, y):
    bits = torch.int16 if x.dtype == BF16 else torch.int32
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(bits), y.contiguous().view(bits))


class Whole:
    """Every layer on one device."""

    def column(self, linear, **options):
        return dt.DetLinear.from_linear(linear, order=self.order)

    row = column

    def __init__(self, order):
        self.order = order


class Split(Whole):
    """Every layer split over the ranks."""

    def column(self, linear, **options):
        return parallel.ColumnParallelLinear(linear, order=self.order, **options)

    def row(self, linear, **options):
        return parallel.RowParallelLinear(linear, order=self.order, **options)


class Block(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.order = make.order
        inner = HEADS * HEAD
        self.q, self.k, self.v = (
            make.column(nn.Linear(WIDTH, inner, bias=i == 0).to(BF16), multiple=HEAD) for i in range(3)
        )
        self.o = make.row(nn.Linear(inner, WIDTH).to(BF16), multiple=HEAD)
        self.up = make.column(nn.Linear(WIDTH, HIDDEN).to(BF16))
        self.down = make.row(nn.Linear(HIDDEN, WIDTH, bias=False).to(BF16))

    def forward(self, x):
        y = F.rms_norm(x, (WIDTH,))
        q, k, v = (
            layer(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = dt.matmul(q, k.mT, order=self.order, out_dtype=torch.float32) / HEAD**0.5
        weights = torch.softmax(scores + torch.full((TOKENS, TOKENS), -1e9).triu(1), -1).to(BF16)
        mixed = dt.matmul(weights, v, order=self.order)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(F.rms_norm(x, (WIDTH,)))))


class Model(nn.Module):
    def __init__(self, make):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, dtype=BF16)
        self.blocks = nn.Sequential(*(Block(make) for _ in range(LAYERS)))
        self.head = make.column(nn.Linear(WIDTH, VOCABULARY).to(BF16), gather_output=True)

    def forward(self, tokens):
        return self.head(F.rms_norm(self.blocks(self.embedding(tokens)), (WIDTH,)))


def tokens(batch):
    return torch.randint(VOCABULARY, (batch, TOKENS), generator=torch.Generator().manual_seed(1))


def train(model, batch):
    """Losses, the first gradients and the logits after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses, gradients = [], {}
    x = tokens(batch)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x)[:, :-1].flatten(0, 1).float(), x[:, 1:].flatten())
        loss.backward()
        losses.append(loss.detach())
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    return torch.stack(losses), gradients, model(x)


def own_share(model, name, whole):
    """A parameter's share of this rank."""
    layer = model.get_submodule(name.rpartition(".")[0])
    if isinstance(layer, parallel.ColumnParallelLinear):
        return whole[layer.own()]
    if isinstance(layer, parallel.RowParallelLinear) and name.endswith("weight"):
        return whole[:, layer.own()]
    return whole


def logprobs(model, x):
    with torch.no_grad():
        scores = torch.log_softmax(model(x)[:, :-1].float(), -1)
    return scores.gather(-1, x[:, 1:, None])[..., 0]


def one_bit_pattern(rank, ranks, order, side_channel):
    if side_channel:  # as on NCCL, where the ranks agree through a group in host memory
        torch.distributed.get_backend_config = lambda group=None: "cuda:nccl"
    whole, split = Model(Whole(order)), Model(Split(order))
    assert (len(_ranks._control_groups) == 1) == side_channel
    x = tokens(64)
    with torch.no_grad():
        logits = split(x)
        assert same(logits, whole(x))
        for row in (0, 63):
            assert same(split(x[row : row + 1])[0], logits[row])
    alone = torch.cat([logprobs(split, row) for row in x[:8].split(1)])
    together = logprobs(split, x[:8])
    ratio = (alone - together).exp()
    assert int(((ratio < 0.9) | (ratio > 1.1)).sum()) == 0
    assert same(alone, together)
    losses, gradients, after = train(split, 32)
    expected = train(whole, 32)
    assert expected[0][-1] < expected[0][0]
    assert same(losses, expected[0]) and same(after, expected[2])
    parameters = dict(whole.named_parameters())
    for name, parameter in split.named_parameters():
        assert same(gradients[name], own_share(split, name, expected[1][name])), name
        assert same(parameter.detach(), own_share(split, name, parameters[name].detach())), name


@pytest.mark.parametrize("order", ["fma", "tc16"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_one_bit_pattern(ranks, order):
    run(one_bit_pattern, ranks, order, ranks == 3)

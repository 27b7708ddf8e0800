#!/usr/bin/env python3
"""Trains a small byte-level language model with two Mixture-of-Experts layers, once through Gemmule and once in plain PyTorch.

The first layer has squared-ReLU experts: their first projection, activation and routing weight are one grouped_gemm_srelu
call (forward, MXFP8). The second has SwiGLU experts: their backward through the second projection, activation and routing
weight is one grouped_gemm_dglu call (BF16, or MXFP8 with --format mxfp8). Everything else of the experts is plain PyTorch: the
functions named stand_in_* take the place of kernels that this library does not have.

    python examples/train_moe.py --steps 60 --plot loss.png
"""

from __future__ import annotations

import argparse
import pathlib

import gemmule
import torch
import torch.nn.functional as F
from torch import Tensor, nn

HIDDEN, INTER, EXPERTS, TOP_K, CONTEXT = 128, 128, 4, 2, 8


# ---- layouts (docs/formats.md) ----


def swizzle(codes: Tensor) -> Tensor:
    """(L, rows, blocks) scale codes -> (32, 4, R, 4, B, L); rows are a multiple of 128, blocks of 4."""
    experts, rows, blocks = codes.shape
    memory = codes.view(experts, rows // 128, 4, 32, blocks // 4, 4).permute(0, 1, 4, 3, 2, 5).contiguous()
    return memory.view(torch.float8_e8m0fnu).permute(3, 4, 1, 5, 2, 0)


def unswizzle(scales: Tensor) -> Tensor:
    """The inverse, as exponents."""
    r, b = scales.shape[2], scales.shape[4]
    codes = scales.view(torch.uint8).permute(5, 2, 1, 0, 4, 3)  # L, R, 4, 32, B, 4
    return codes.reshape(-1, r * 128, b * 4).to(torch.int32) - 127


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """(L, rows, K) -> MXFP8 codes and scale factors: one power of two, rounded up, for 32 values along K."""
    blocks = x.float().unflatten(-1, (-1, 32))
    mantissa, exponent = torch.frexp(blocks.abs().amax(-1) / 448)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent).clamp(-127, 127)
    codes = torch.ldexp(blocks, -exponent[..., None]).flatten(-2).to(torch.float8_e4m3fn)
    return codes, swizzle((exponent + 127).to(torch.uint8))


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """Two (M, N) halves -> (M, 2N) in alternating blocks of 32 columns, gate first."""
    return torch.stack([gate.unflatten(1, (-1, 32)), up.unflatten(1, (-1, 32))], 2).flatten(1)


def deinterleave(x: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = x.unflatten(1, (-1, 2, 32)).unbind(2)
    return gate.flatten(1), up.flatten(1)


# ---- what has no kernel here ----


def stand_in_grouped_matmul(x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Row m of expert g: x[m] @ weights[g]. weights: (L, K, N)."""
    ends = offsets.tolist()
    return torch.cat([x[s:e] @ weights[g] for g, (s, e) in enumerate(zip([0, *ends[:-1]], ends, strict=True))])


def stand_in_weight_gradient(x: Tensor, dy: Tensor, offsets: Tensor) -> Tensor:
    """(L, K, N): x^T dy of every expert."""
    ends = offsets.tolist()
    return torch.stack([x[s:e].T @ dy[s:e] for s, e in zip([0, *ends[:-1]], ends, strict=True)])


# ---- experts through Gemmule. Weights: w1 (L, K, N), w2 (L, N, K); x: (M, K); prob: (M,) ----


class SreluExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w1, w2, prob, offsets):  # type: ignore[no-untyped-def]
        a, sfa = quantize(x[None])
        b, sfb = quantize(w1.transpose(1, 2))
        c, d, *_ = gemmule.grouped_gemm_srelu_wrapper_sm100(
            a_tensor=a.permute(1, 2, 0), b_tensor=b.permute(1, 2, 0), sfa_tensor=sfa, sfb_tensor=sfb, padded_offsets=offsets,
            alpha_tensor=x.new_ones(EXPERTS), prob_tensor=prob[:, None, None], sf_vec_size=32,
        )  # fmt: skip
        c, d = c[:, :, 0].float(), d[:, :, 0].float()
        ctx.save_for_backward(x, w1, w2, prob, offsets, c, d)
        return stand_in_grouped_matmul(d, w2, offsets)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, w1, w2, prob, offsets, c, d = ctx.saved_tensors
        dd = stand_in_grouped_matmul(dy, w2.transpose(1, 2), offsets)
        dc, dprob = dd * prob[:, None] * 2 * c.relu(), (dd * c.relu().square()).sum(1)
        dx = stand_in_grouped_matmul(dc, w1.transpose(1, 2), offsets)
        dw2 = stand_in_weight_gradient(d, dy, offsets)
        return dx, stand_in_weight_gradient(x, dc, offsets), dw2, dprob, None


class SwigluExperts(torch.autograd.Function):
    """w1: (L, K, 2N) with gate and input columns in alternating blocks of 32."""

    @staticmethod
    def forward(ctx, x, w1, w2, prob, offsets, mxfp8):  # type: ignore[no-untyped-def]
        z = stand_in_grouped_matmul(x, w1, offsets).to(torch.bfloat16)
        gate, up = deinterleave(z.float())
        h = F.silu(gate) * up * prob[:, None]
        ctx.save_for_backward(x, w1, w2, prob, offsets, z, h)
        ctx.mxfp8 = mxfp8
        return stand_in_grouped_matmul(h, w2, offsets)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, w1, w2, prob, offsets, z, h = ctx.saved_tensors
        dprob, ones = dy.new_zeros(len(dy), 1, 1), dy.new_ones(EXPERTS)
        common = {
            "c_tensor": z[:, :, None], "padded_offsets": offsets, "alpha_tensor": ones, "beta_tensor": ones,
            "prob_tensor": prob[:, None, None], "dprob_tensor": dprob, "act_func": "dswiglu",
        }  # fmt: skip
        if ctx.mxfp8:
            # Gradients are small: a norm_const of 1 keeps the scale factors what MXFP8 defines.
            a, sfa = quantize(dy[None])
            b, sfb = quantize(w2)
            out = gemmule.grouped_gemm_dglu_wrapper_sm100(
                a_tensor=a.permute(1, 2, 0), b_tensor=b.permute(1, 2, 0), sfa_tensor=sfa, sfb_tensor=sfb, sf_vec_size=32,
                norm_const_tensor=dy.new_ones(1), d_dtype=torch.float8_e4m3fn, **common,
            )  # fmt: skip
            exponents = unswizzle(out["sfd_row_tensor"])[0, :, : z.shape[1] // 32].repeat_interleave(32, 1)
            dz = torch.ldexp(out["d_row_tensor"][:, :, 0].float(), exponents)
        else:
            out = gemmule.grouped_gemm_dglu_wrapper_sm100(
                a_tensor=dy.to(torch.bfloat16)[:, :, None], b_tensor=w2.to(torch.bfloat16).permute(1, 2, 0), sfa_tensor=None,
                **common,
            )  # fmt: skip
            dz = out["d_row_tensor"][:, :, 0].float()
        dx = stand_in_grouped_matmul(dz, w1.transpose(1, 2), offsets)
        dw1, dw2 = stand_in_weight_gradient(x, dz, offsets), stand_in_weight_gradient(h, dy, offsets)
        return dx, dw1, dw2, dprob[:, 0, 0], None, None


# ---- the model ----


class MoE(nn.Module):
    def __init__(self, activation: str, gemmule_format: str | None) -> None:
        super().__init__()
        self.activation, self.format = activation, gemmule_format
        width = INTER if activation == "srelu" else 2 * INTER
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.w1 = nn.Parameter(torch.randn(EXPERTS, HIDDEN, width) / HIDDEN**0.5)
        self.w2 = nn.Parameter(torch.randn(EXPERTS, INTER, HIDDEN) / INTER**0.5)

    def experts(self, x: Tensor, prob: Tensor, offsets: Tensor) -> Tensor:
        if self.format and self.activation == "srelu":
            return SreluExperts.apply(x, self.w1, self.w2, prob, offsets)  # type: ignore[no-any-return]
        if self.format:
            return SwigluExperts.apply(x, self.w1, self.w2, prob, offsets, self.format == "mxfp8")  # type: ignore[no-any-return]
        z = stand_in_grouped_matmul(x, self.w1, offsets)
        if self.activation == "srelu":
            h = z.relu().square()
        else:
            gate, up = deinterleave(z)
            h = F.silu(gate) * up
        return stand_in_grouped_matmul(h * prob[:, None], self.w2, offsets)

    def forward(self, x: Tensor) -> Tensor:
        weight, expert = self.router(x).softmax(1).topk(TOP_K)
        order = expert.flatten().argsort(stable=True)  # assignments by expert
        counts = torch.bincount(expert.flatten(), minlength=EXPERTS)
        padded = (counts + 255) // 256 * 256
        start = padded.cumsum(0) - padded
        sorted_expert = expert.flatten()[order]
        within = torch.arange(len(order), device=x.device) - (counts.cumsum(0) - counts)[sorted_expert]
        row, token = start[sorted_expert] + within, order // TOP_K
        rows = int(padded.sum())
        grouped = x.new_zeros(rows, HIDDEN).index_copy(0, row, x[token])  # padding rows are zero
        prob = x.new_zeros(rows).index_copy(0, row, weight.flatten()[order])
        y = self.experts(grouped, prob, padded.cumsum(0).to(torch.int32))
        return torch.zeros_like(x).index_add(0, token, y[row])


class Model(nn.Module):
    """Predicts a byte from the CONTEXT bytes before it."""

    def __init__(self, gemmule_format: str | None) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, HIDDEN // CONTEXT)
        self.norms = nn.ModuleList([nn.LayerNorm(HIDDEN) for _ in range(3)])
        self.layers = nn.ModuleList([MoE("srelu", gemmule_format), MoE("swiglu", gemmule_format)])
        self.head = nn.Linear(HIDDEN, 256)

    def forward(self, context: Tensor) -> Tensor:
        x = self.embed(context).flatten(1)
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x))
        return self.head(self.norms[2](x))  # type: ignore[no-any-return]


def text() -> Tensor:
    """The documentation of this repository as bytes."""
    root = pathlib.Path(__file__).resolve().parent.parent
    data = b"".join(path.read_bytes() for path in sorted(root.glob("docs/*.md")))
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def train(name: str, gemmule_format: str | None, options: argparse.Namespace) -> list[float]:
    torch.manual_seed(0)
    model = Model(gemmule_format).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data, losses = text().to(options.device), []
    for step in range(options.steps):
        at = torch.randint(CONTEXT, len(data), (options.batch,), generator=torch.Generator().manual_seed(step)).to(data.device)
        context = data[at[:, None] + torch.arange(-CONTEXT, 0, device=data.device)]
        loss = F.cross_entropy(model(context), data[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 9:
            print(f"{name:<14} step {step + 1:4d}  loss {sum(losses[-10:]) / 10:.4f}", flush=True)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=["bf16", "mxfp8"], default="bf16", help="of the SwiGLU layer (default: bf16)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--plot", metavar="PNG", help="write the losses as a picture (needs matplotlib)")
    options = parser.parse_args()
    plain = train("plain PyTorch", None, options)
    ours = train("Gemmule", options.format, options)
    tail = max(1, options.steps // 6)
    a, b = (sum(x[-tail:]) / tail for x in (plain, ours))
    print(f"mean loss of the last {tail} steps: plain PyTorch {a:.4f}, Gemmule ({options.format}) {b:.4f}")
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        plt.figure(figsize=(7, 4))
        plt.plot(plain, label="plain PyTorch")
        plt.plot(ours, label=f"Gemmule ({options.format})", linestyle="--")
        plt.xlabel("step")
        plt.ylabel("loss (nats per byte)")
        plt.legend()
        plt.tight_layout()
        plt.savefig(options.plot, dpi=120)
        print(f"wrote {options.plot}")


if __name__ == "__main__":
    main()

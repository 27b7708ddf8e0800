"""Block-scaled grouped_gemm_srelu and grouped_gemm_dglu on one CUDA GPU beside what a user would run instead, in one process.

    python3 scaled_torch.py LIBRARY [ours|peers|compile|options|small] [--only WORK,...] [--shapes NAME,...] [--json FILE]

LIBRARY is libgemmule_bench_gpu.so of this build. Random data; medians of CUDA-event timings.
  ours     six model shapes: ours and torch's BF16 grouped_mm alone (GEMM only), in turns so that both see the same clocks
  peers    the same, and the pipelines: dequantize + grouped_mm + epilogue, each compiled by torch.compile for the shape and
           timed after the two
  compile  only compiles the pipelines, into PyTorch's cache (TORCHINDUCTOR_CACHE_DIR), in several processes. `peers` does that
           by itself first
  options  cost of options relative to ours without them, timed in turn so that both see the same clocks
  small    128 experts of 256 rows, the same rows in 16 experts, and a skewed routing
"""
import argparse
import ctypes as ct
import json
import os
import subprocess
import sys
import time

import torch

from dglu_torch import SHAPES, dswiglu, geometric_mean, median_ms, round_robin_ms

BF16, E4M3, E2M1 = 0, 3, 5  # codes of scaled_c.cpp
# name: (options of the plan, rival's name)
WORK = {
    "srelu mxfp8 -> bf16": dict(ab=E4M3, d=BF16, vec=32),
    "srelu mxfp8 -> mxfp8 row+col": dict(ab=E4M3, d=E4M3, vec=32),
    "srelu nvfp4 -> bf16": dict(ab=E2M1, d=BF16, vec=16, scale_e4m3=1),
    "dswiglu mxfp8 -> mxfp8 row+col": dict(ab=E4M3, d=E4M3, vec=32, dglu=1),
    "dswiglu nvfp4 -> bf16": dict(ab=E2M1, d=BF16, vec=16, scale_e4m3=1, dglu=1),
}
INTS = ("experts", "dglu", "ab", "c", "d", "scale_e4m3", "vec", "act", "discrete", "n_major", "dbias", "deterministic", "dynamic",
        "discrete_col_sfd", "m_aligned", "sm_limit")
POINTERS = ("a", "b", "sfa", "sfb", "b_ptrs", "sfb_ptrs", "offsets", "alpha", "beta", "prob", "norm_const", "c", "d", "d_col",
            "sfd_row", "sfd_col", "amax", "dprob", "dbias")


class Options(ct.Structure):
    _fields_ = [("n", ct.c_int64), ("k", ct.c_int64)] + [(name, ct.c_int) for name in INTS] + [("clamp", ct.c_float)]


class Operands(ct.Structure):
    _fields_ = [("m", ct.c_int64)] + [(name, ct.c_void_p) for name in POINTERS]


# ------------------------------------------------------------------------------------------------------------ formats

VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def quantize_mxfp8(x):
    """e4m3 codes, and e8m0 codes of the scales of 32 neighbours of a row, rounded up."""
    blocks = x.float().view(x.shape[0], -1, 32)
    exponent = torch.ceil(torch.log2((blocks.abs().amax(2, keepdim=True) / 448).clamp(min=2.0**-126)))
    codes = (blocks * torch.exp2(-exponent)).view_as(x).to(torch.float8_e4m3fn)
    return codes, (exponent.squeeze(2) + 127).to(torch.uint8)


def quantize_nvfp4(x):
    """Packed e2m1 codes (even k in the low nibble), and e4m3 scales of 16 neighbours."""
    blocks = x.float().view(x.shape[0], -1, 16)
    scale = (blocks.abs().amax(2, keepdim=True) / 6).clamp(min=2.0**-9).to(torch.float8_e4m3fn)
    y = (blocks / scale.float()).view(x.shape[0], -1)
    middles = (VALUES[1:] + VALUES[:-1]).to(x.device) / 2
    codes = torch.bucketize(y.abs(), middles).to(torch.uint8) | (y < 0).to(torch.uint8) << 3
    return codes[:, 0::2] | codes[:, 1::2] << 4, scale.squeeze(2)


def dequantize_mxfp8(codes, scale):
    x = codes.float().view(codes.shape[0], -1, 32) * torch.exp2(scale.float() - 127).unsqueeze(2)
    return x.view(codes.shape).to(torch.bfloat16)


def dequantize_nvfp4(codes, scale):
    table = torch.cat([VALUES, -VALUES]).to(device=codes.device, dtype=torch.bfloat16)
    pairs = torch.stack([table[(codes & 15).int()], table[(codes >> 4).int()]], 2).view(codes.shape[0], -1, 16)
    return (pairs.float() * scale.float().unsqueeze(2)).view(codes.shape[0], -1).to(torch.bfloat16)


def atoms(scale, slabs=1):
    """[slabs * rows][blocks] to the operators' layout: atoms of 128 rows x 4 blocks."""
    scale = scale.view(torch.uint8).view(slabs, -1, scale.shape[1])
    rows, blocks = scale.shape[1], scale.shape[2]
    padded = torch.zeros(slabs, (rows + 127) // 128 * 128, (blocks + 3) // 4 * 4, dtype=torch.uint8, device=scale.device)
    padded[:, :rows, :blocks] = scale
    return padded.view(slabs, -1, 4, 32, padded.shape[2] // 4, 4).permute(0, 1, 4, 3, 2, 5).contiguous()


def decode_rows(codes, sfd, blocks):
    """D in float32 from e4m3 codes and SFD_row."""
    rows = codes.shape[0]
    scale = sfd.view(rows // 128, -1, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, -1)[:, :blocks]
    return (codes.view(torch.float8_e4m3fn).float().view(rows, blocks, 32) * torch.exp2(scale.float() - 127).unsqueeze(2)).view(rows, -1)


# -------------------------------------------------------------------------------------------------------------- rivals

def srelu(product, prob):
    return (torch.relu(product.float()) ** 2 * prob).to(torch.bfloat16)


def quantize_both_ways(y):
    return quantize_mxfp8(y), quantize_mxfp8(y.t().contiguous())


def srelu_quantized(product, prob):
    return quantize_both_ways(torch.relu(product.float()) ** 2 * prob)


def dswiglu_quantized(product, c, prob):
    d, dprob = dswiglu(product, c, prob)
    return quantize_both_ways(d), dprob


class Batch:
    """One shape: BF16 operands for grouped_mm, and both quantizations of them."""

    def __init__(self, rows, n, k, nvfp4=True):
        self.rows, self.n, self.k, self.experts, self.m = rows, n, k, len(rows), sum(rows)
        cuda = dict(device="cuda")
        self.a = torch.randn(self.m, k, dtype=torch.bfloat16, **cuda)
        self.b = torch.randn(self.experts, n, k, dtype=torch.bfloat16, **cuda) / k**0.5
        self.offsets = torch.tensor(rows).cumsum(0).to(torch.int32).cuda()
        self.prob = torch.rand(self.m, 1, **cuda)
        self.c = torch.randn(self.m, 2 * n, dtype=torch.bfloat16, **cuda)
        self.ones = torch.ones(max(self.experts, 1), **cuda)
        flat = self.b.view(-1, k)
        self.codes = {E4M3: (quantize_mxfp8(self.a), quantize_mxfp8(flat))}
        if nvfp4:
            self.codes[E2M1] = (quantize_nvfp4(self.a), quantize_nvfp4(flat))
        self.flops = 2 * self.m * n * k

    def gemm(self):
        return torch._grouped_mm(self.a, self.b.transpose(1, 2), offs=self.offsets)

    def dequantized(self, ab, dequantize):
        (a, sa), (b, sb) = self.codes[ab]
        return dequantize(a, sa), dequantize(b, sb).view(self.experts, self.n, self.k)

    def product(self, ab, dequantize):
        a, b = self.dequantized(ab, dequantize)
        return torch._grouped_mm(a, b.transpose(1, 2), offs=self.offsets)


class Ours:
    def __init__(self, library, batch, c=BF16, m_aligned=256, **options):
        self.library, self.plan, self.batch = library, ct.c_void_p(), batch
        o = Options(n=batch.n, k=batch.k, experts=batch.experts, c=c, m_aligned=m_aligned, **options)
        self.check(library.scaled_plan(ct.byref(o), ct.byref(self.plan)))
        self.width, self.quantized = batch.n * (2 if o.dglu else 1), o.d == E4M3
        (a, sa), (b, sb) = batch.codes[o.ab]
        if o.n_major:
            b = b.view(batch.experts, batch.n, -1).transpose(1, 2).contiguous()
        self.sfa, self.sfb = atoms(sa), atoms(sb, batch.experts)
        empty = lambda *shape, dtype=torch.uint8: torch.empty(*shape, dtype=dtype, device="cuda")
        values = (batch.m, self.width)
        self.c = batch.c if o.dglu else empty(*values, dtype=torch.bfloat16)
        self.d = empty(*values, dtype=torch.uint8 if self.quantized else torch.bfloat16)
        self.d_col, self.sfd_row, self.sfd_col = self.d, None, None
        if self.quantized:
            self.d_col = empty(*values)
            scale_rows = lambda rows, length: empty((rows + 127) // 128 * 128, (length + 127) // 128 * 4)
            self.sfd_row, self.sfd_col = scale_rows(batch.m, self.width), scale_rows(self.width, batch.m)
        self.amax = torch.full((batch.experts, 2), -torch.inf, device="cuda")
        self.dprob = torch.zeros(batch.m, device="cuda")
        dbias = torch.zeros(batch.experts, 2 * batch.n, dtype=torch.bfloat16, device="cuda")
        address = lambda x: x.data_ptr() if x is not None else None
        slabs = lambda x: torch.tensor([s.data_ptr() for s in x.view(batch.experts, -1)], dtype=torch.int64, device="cuda")
        b_ptrs, sfb_ptrs = slabs(b), slabs(self.sfb)
        tensors = dict(a=a, b=b, sfa=self.sfa, sfb=self.sfb, b_ptrs=b_ptrs, sfb_ptrs=sfb_ptrs, offsets=batch.offsets,
                       alpha=batch.ones, beta=batch.ones, prob=batch.prob, norm_const=batch.ones, c=self.c, d=self.d,
                       d_col=self.d_col, sfd_row=self.sfd_row, sfd_col=self.sfd_col, amax=self.amax, dprob=self.dprob,
                       dbias=dbias)
        self.keep = tensors
        self.operands = Operands(batch.m, *(address(tensors[name]) for name in POINTERS))
        bytes_ = library.bench_workspace(self.plan, ct.c_int64(batch.m))
        self.workspace = empty(bytes_ + 256)
        self.bytes, self.scratch = ct.c_int64(bytes_), ct.c_void_p((self.workspace.data_ptr() + 255) // 256 * 256)
        moved = [a, b, self.sfa, self.sfb, self.c, self.d]
        if self.quantized:
            moved += [self.d_col, self.sfd_row, self.sfd_col]
        self.traffic = sum(x.numel() * x.element_size() for x in moved)  # bytes, each once

    def check(self, fault):
        if fault:
            raise RuntimeError(self.library.bench_error().decode())

    def __call__(self):
        stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.scaled_execute(self.plan, ct.byref(self.operands), self.scratch, self.bytes, stream))

    def __del__(self):
        if self.plan:
            self.library.bench_free(self.plan)

    def result(self):
        return decode_rows(self.d, self.sfd_row, self.width // 32) if self.quantized else self.d.float()


def exact_result(batch, options):
    """D by PyTorch, from the same codes."""
    dequantize = dequantize_nvfp4 if options["ab"] == E2M1 else dequantize_mxfp8
    product = batch.product(options["ab"], dequantize)
    return (dswiglu(product, batch.c, batch.prob)[0] if options.get("dglu") else srelu(product, batch.prob)).float()


def check_result(name, ours, batch, options):
    ours()
    expected = exact_result(batch, options)
    error = ((ours.result() - expected).norm() / expected.norm()).item()
    # BF16 rounding of the product and of D: 3e-3; e4m3 D: 2.6 %.
    if not error < (0.035 if ours.quantized else 8e-3):
        raise RuntimeError(f"{name}: relative difference {error}")


def pipelines(batch):
    compiled = lambda f: torch.compile(f, dynamic=False)
    dequantize = {E4M3: compiled(dequantize_mxfp8), E2M1: compiled(dequantize_nvfp4)}
    epilogue = {(0, BF16): compiled(srelu), (0, E4M3): compiled(srelu_quantized), (1, BF16): compiled(dswiglu),
                (1, E4M3): compiled(dswiglu_quantized)}

    def pipeline(options):
        dglu = options.get("dglu", 0)
        end = epilogue[dglu, options["d"]]
        factors = (batch.c, batch.prob) if dglu else (batch.prob,)
        return lambda: end(batch.product(options["ab"], dequantize[options["ab"]]), *factors)

    return pipeline


# ---------------------------------------------------------------------------------------------------------------- runs

def limits():
    """TFLOP/s of cuBLAS in BF16, and TB/s of a copy."""
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    peak = 2 * 8192**3 / median_ms(lambda: a @ b.t()) * 1e-9
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return peak, 2 * x.numel() / median_ms(lambda: y.copy_(x)) * 1e-9


def shapes_table(library, args, with_pipelines):
    peak, bandwidth = limits()
    print(f"cuBLAS BF16 8192^3: {peak:.0f} TFLOP/s; copy: {bandwidth:.2f} TB/s (read + written)", flush=True)
    print("ms; TFLOP/s of 2MNK; share of cuBLAS; TB/s of A, B, scales, C, D once, and share of copy; grouped_mm, ms, and /ours; "
          "pipeline/ours")
    ratios = {}
    for shape in args.shapes:
        experts, rows, n, k = SHAPES[shape]
        batch = Batch([rows] * experts, n, k)
        torch._dynamo.reset()
        pipeline = pipelines(batch)
        print(f"{shape} ({experts} x {rows}, {n}, {k})", flush=True)
        for name in args.only:
            options = WORK[name]
            ours = Ours(library, batch, **options)
            check_result(f"{shape}, {name}", ours, batch, options)
            gemm, mine = round_robin_ms([batch.gemm, ours])
            rival = median_ms(pipeline(options), n=10, warm=3) if with_pipelines else float("nan")
            rate, moved = batch.flops / mine * 1e-9, ours.traffic / mine * 1e-9
            ratios.setdefault(name, []).append((gemm / mine, rival / mine))
            args.rows.append(dict(shape=shape, work=name, ours_ms=mine, grouped_mm_ms=gemm, pipeline_ms=rival, tflops=rate,
                                  tbps=moved))
            print(f"  {name:32s} {mine:8.4f} {rate:5.0f} {rate / peak:5.2f}  {moved:5.2f} {moved / bandwidth:5.2f}  "
                  f"{gemm:8.4f} {gemm / mine:6.3f} {rival / mine:7.2f}", flush=True)
            del ours
        del batch, pipeline
        torch.cuda.empty_cache()
    for name, values in ratios.items():
        to_gemm, to_pipeline = zip(*values)
        print(f"{name:34s} geometric mean {geometric_mean(to_gemm):.3f} (lowest {min(to_gemm):.3f}) of grouped_mm, "
              f"{geometric_mean(to_pipeline):.2f} (lowest {min(to_pipeline):.2f}) x the pipeline")


def compile_pipelines(args):
    """Each shape and kind of operands in a process of its own, without workers: torch.compile by itself does only the last
    step in parallel."""
    groups = {}
    for name in args.only:
        options = WORK[name]
        groups.setdefault((options["ab"], options.get("dglu", 0) * options["d"]), []).append(name)
    if len(args.shapes) == 1 and len(groups) == 1:
        experts, rows, n, k = SHAPES[args.shapes[0]]
        nvfp4 = any(WORK[name]["ab"] == E2M1 for name in args.only)
        pipeline = pipelines(Batch([rows] * experts, n, k, nvfp4))
        for name in args.only:
            pipeline(WORK[name])()
        torch.cuda.synchronize()
        return
    begin = time.perf_counter()
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    command = [sys.executable, __file__, args.library, "compile"]
    running = [subprocess.Popen([*command, "--only", ",".join(names), "--shapes", shape], env=environment)
               for shape in args.shapes for names in groups.values()]
    if any([process.wait() for process in running]):
        raise RuntimeError("a process that compiles pipelines failed")
    print(f"pipelines compiled in {time.perf_counter() - begin:.0f} s", flush=True)


OPTIONS = {"dbias": dict(dbias=1), "deterministic": dict(deterministic=1), "dgeglu": dict(act=1), "dsituglu": dict(act=2),
           "discrete": dict(discrete=1), "dynamic": dict(dynamic=1), "n-major": dict(n_major=1),
           "columns per expert": dict(discrete_col_sfd=1), "m_aligned 128": dict(m_aligned=128), "clamp": dict(clamp=8.0)}
DGLU_ONLY, SRELU_ONLY, FP8_ONLY = ("dbias", "deterministic", "dgeglu", "dsituglu"), ("clamp",), ("n-major", "columns per expert")


def options_table(library, args):
    print("cost over ours without the option, %")
    for shape in args.shapes:
        experts, rows, n, k = SHAPES[shape]
        batch = Batch([rows] * experts, n, k)
        for name in args.only:
            base = WORK[name]
            wanted = {o: v for o, v in OPTIONS.items() if (o not in DGLU_ONLY or base.get("dglu")) and
                      (o not in SRELU_ONLY or not base.get("dglu")) and (o not in FP8_ONLY or base["ab"] == E4M3)}
            plain, costs = Ours(library, batch, **base), []
            for label, o in wanted.items():
                without, with_ = round_robin_ms([plain, Ours(library, batch, **base, **o)])
                costs.append(f"{label} {(with_ / without - 1) * 100:+.1f}")
            print(f"{shape:16s} {name:32s} " + ", ".join(costs), flush=True)
        del batch


def small_table(library, args):
    hot = 32768 * 2 // 5 // 256 * 256
    rest, live = (32768 - hot) // 256, 95
    skewed = [0] * 32 + [256 * (rest // live + (i < rest % live)) for i in range(live)] + [hot]
    for routing, rows in (("128 x 256", [256] * 128), ("16 x 2048", [2048] * 16), ("one expert 40 %, 32 of 128 empty", skewed)):
        batch = Batch(rows, 1536, 2048)
        for name in args.only:
            gemm, mine = round_robin_ms([batch.gemm, Ours(library, batch, **WORK[name])])
            print(f"{routing:32s} {name:32s} grouped_mm {gemm:.4f} ms, ours {mine:.4f} ms {batch.flops / mine * 1e-9:.0f} TFLOP/s",
                  flush=True)
        del batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("what", nargs="?", default="peers", choices=("ours", "peers", "compile", "options", "small"))
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WORK))
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=list(SHAPES))
    parser.add_argument("--json")
    args = parser.parse_args()
    args.rows = []
    if args.what in ("peers", "compile"):
        compile_pipelines(args)
        if args.what == "compile":
            return
    library = ct.CDLL(args.library)
    library.bench_workspace.restype, library.bench_error.restype = ct.c_int64, ct.c_char_p
    torch.manual_seed(0)
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    if args.what in ("ours", "peers"):
        shapes_table(library, args, args.what == "peers")
    else:
        {"options": options_table, "small": small_table}[args.what](library, args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(args.rows, file, indent=1)


if __name__ == "__main__":
    main()

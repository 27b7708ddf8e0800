"""BF16 grouped_gemm_dglu on one CUDA GPU beside what a user would run instead, in one process.

    python3 dglu_torch.py LIBRARY [peers] [options] [small] [host]

LIBRARY is libgemmule_bench_gpu.so of this build. Random data; medians of CUDA-event timings.
  peers    six model shapes: torch grouped_mm alone (GEMM only), grouped_mm + torch.compile epilogue, and ours
  options  cost of every option relative to ours without it, timed in turn so that both see the same clocks
  small    128 experts of 256 rows, the same rows in 16 experts, and a skewed routing
  host     host time of one execute() call, ten in a row between synchronizations
"""
import ctypes as ct
import math
import random
import subprocess
import sys

import torch

# name: (experts, rows per expert, N = compact width, K), from public model configurations
SHAPES = {
    "deepseek-v3": (8, 4096, 2048, 7168), "qwen3-235b": (16, 2048, 1536, 4096), "gpt-oss-120b": (16, 2048, 2880, 2880),
    "mixtral-8x7b": (8, 4096, 14336, 4096), "nemotron3-nano": (16, 2048, 1856, 2688), "square-4096": (8, 4096, 4096, 4096),
}
OPTIONS = {"dbias": dict(dbias=1), "deterministic": dict(deterministic=1), "both": dict(dbias=1, deterministic=1),
           "dgeglu": dict(geglu=1), "discrete": dict(discrete=1), "discrete, n-major": dict(discrete=1, n_major=1),
           "dynamic": dict(dynamic=1)}
INTS = ("experts", "c", "d", "geglu", "discrete", "n_major", "dbias", "deterministic", "dynamic", "sm_limit")


class Options(ct.Structure):
    _fields_ = [("n", ct.c_int64), ("k", ct.c_int64)] + [(name, ct.c_int) for name in INTS]


class Operands(ct.Structure):
    _fields_ = [("m", ct.c_int64)] + [(name, ct.c_void_p) for name in
                ("a", "b", "b_ptrs", "offsets", "alpha", "beta", "prob", "c", "d", "dprob", "dbias")]


class Batch:
    def __init__(self, rows, n, k):
        self.rows, self.n, self.k, self.experts, self.m = rows, n, k, len(rows), sum(rows)
        cuda = dict(device="cuda")
        self.a = torch.randn(self.m, k, dtype=torch.bfloat16, **cuda)
        self.b = torch.randn(self.experts, n, k, dtype=torch.bfloat16, **cuda) / k**0.5
        self.c = torch.randn(self.m, 2 * n, dtype=torch.bfloat16, **cuda)
        self.d = torch.empty(self.m, 2 * n, dtype=torch.bfloat16, **cuda)
        self.offsets = torch.tensor(rows).cumsum(0).to(torch.int32).cuda()
        self.ones = torch.ones(self.experts, **cuda)
        self.prob = torch.rand(self.m, 1, **cuda)
        self.dprob = torch.zeros(self.m, **cuda)
        self.flops = 2 * self.m * n * k

    def gemm(self):
        return torch._grouped_mm(self.a, self.b.transpose(1, 2), offs=self.offsets)


class Ours:
    def __init__(self, library, batch, **options):
        self.library, self.plan, self.batch = library, ct.c_void_p(), batch
        o = Options(n=batch.n, k=batch.k, experts=batch.experts, **options)
        self.check(library.bench_plan(ct.byref(o), ct.byref(self.plan)))
        b = batch.b
        if options.get("n_major"):
            b = b.transpose(1, 2).contiguous()
        slabs = [b[e] for e in range(batch.experts)]
        self.pointers = torch.tensor([s.data_ptr() for s in slabs], dtype=torch.int64, device="cuda")
        dbias = torch.zeros(batch.experts, 2 * batch.n, dtype=torch.bfloat16, device="cuda")
        bytes_ = library.bench_workspace(self.plan, ct.c_int64(batch.m))
        self.workspace = torch.empty(bytes_ + 256, dtype=torch.uint8, device="cuda")
        self.keep = (b, dbias)
        self.operands = Operands(batch.m, batch.a.data_ptr(), b.data_ptr(), self.pointers.data_ptr(), batch.offsets.data_ptr(),
                                 batch.ones.data_ptr(), batch.ones.data_ptr(), batch.prob.data_ptr(), batch.c.data_ptr(),
                                 batch.d.data_ptr(), batch.dprob.data_ptr(), dbias.data_ptr())
        self.bytes, self.scratch = ct.c_int64(bytes_), ct.c_void_p((self.workspace.data_ptr() + 255) // 256 * 256)

    def check(self, fault):
        if fault:
            raise RuntimeError(self.library.bench_error().decode())

    def __call__(self):
        stream = ct.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.bench_execute(self.plan, ct.byref(self.operands), self.scratch, self.bytes, stream))


def timed(function):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    return start, end


def median_ms(function, n=20, warm=5):
    """One after the other, with a pause for the host in between."""
    for _ in range(warm):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(n):
        start, end = timed(function)
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[n // 2]


def round_robin_ms(functions, n=15, warm=3):
    """In turn, every round in another order and after an untimed call: whoever comes first after a pause is slower."""
    for function in functions:
        for _ in range(warm):
            function()
    torch.cuda.synchronize()
    events = [[] for _ in functions]
    order, shuffle = list(range(len(functions))), random.Random(0).shuffle
    for _ in range(n):
        shuffle(order)
        functions[order[-1]]()
        for i in order:
            events[i].append(timed(functions[i]))
        torch.cuda.synchronize()
    return [sorted(s.elapsed_time(e) for s, e in v)[n // 2] for v in events]


def split(x, n):  # (M, 2N) in 32-column blocks, gate first
    v = x.float().view(x.shape[0], n // 32, 2, 32)
    return v[:, :, 0].reshape(-1, n), v[:, :, 1].reshape(-1, n)


def dswiglu(r, c, prob):
    n = r.shape[1]
    gate, up = split(c, n)
    r, s = r.float(), torch.sigmoid(gate)
    w, rp = gate * s, r * prob
    d = torch.stack([(rp * up * s * (1 + gate * (1 - s))).view(-1, n // 32, 32), (rp * w).view(-1, n // 32, 32)], 2)
    return d.reshape(-1, 2 * n).to(torch.bfloat16), (r * w * up).sum(1, keepdim=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def uniform(shape):
    experts, rows, n, k = SHAPES[shape]
    return Batch([rows] * experts, n, k)


def peers(library):
    print("shape             grouped_mm      pipeline        ours            ours/grouped_mm  ours/pipeline")
    gemm_ratio, pipe_ratio = [], []
    for shape in SHAPES:
        batch = uniform(shape)
        torch._dynamo.reset()
        epilogue, ours = torch.compile(dswiglu, dynamic=False), Ours(library, batch)
        gemm, mine = median_ms(batch.gemm), median_ms(ours)
        pipeline = median_ms(lambda: epilogue(batch.gemm(), batch.c, batch.prob))
        gemm, mine = (gemm + median_ms(batch.gemm)) / 2, (mine + median_ms(ours)) / 2
        d, dprob = epilogue(batch.gemm(), batch.c, batch.prob)
        batch.dprob.zero_()
        ours()
        error = ((batch.d.float() - d.float()).norm() / d.float().norm()).item()
        if not error < 1e-2:
            raise RuntimeError(f"{shape}: relative difference {error}")
        rate = lambda ms: f"{ms:7.4f} ms {batch.flops / ms * 1e-9:4.0f}"
        gemm_ratio.append(gemm / mine)
        pipe_ratio.append(pipeline / mine)
        print(f"{shape:16s} {rate(gemm)} {rate(pipeline)} {rate(mine)}  {gemm / mine:8.3f} {pipeline / mine:15.2f}", flush=True)
        del batch, ours
    print(f"geometric mean {geometric_mean(gemm_ratio):.3f} (lowest {min(gemm_ratio):.3f}) of grouped_mm alone, "
          f"{geometric_mean(pipe_ratio):.2f} x the pipeline; TFLOP/s of 2MNK")


def options(library):
    print("cost over ours without the option, %: " + ", ".join(OPTIONS))
    for shape in SHAPES:
        batch = uniform(shape)
        plain, costs = Ours(library, batch), []
        for o in OPTIONS.values():
            without, with_ = round_robin_ms([plain, Ours(library, batch, **o)])
            costs.append((with_ / without - 1) * 100)
        print(f"{shape:16s} " + " ".join(f"{c:+6.1f}" for c in costs), flush=True)
        del batch, plain


def small(library):
    hot = 32768 * 2 // 5 // 256 * 256
    rest, live = (32768 - hot) // 256, 95
    skewed = [0] * 32 + [256 * (rest // live + (i < rest % live)) for i in range(live)] + [hot]
    routings = {"16 x 2048": [2048] * 16, "128 x 256": [256] * 128, "one expert 40 %, 32 of 128 empty": skewed}
    batches = [Batch(rows, 1536, 2048) for rows in routings.values()]
    times = round_robin_ms([batch.gemm for batch in batches] + [Ours(library, batch) for batch in batches])
    for name, batch, gemm, mine in zip(routings, batches, times, times[len(batches):]):
        print(f"{name:32s} grouped_mm {gemm:.4f} ms, ours {mine:.4f} ms {batch.flops / mine * 1e-9:.0f} TFLOP/s, "
              f"{times[len(batches)] / mine:.3f} of equal groups", flush=True)


def host(library):
    batch, calls = Batch([256], 64, 64), 10
    for name, o in {"one launch": {}, **OPTIONS}.items():
        ours, seconds, times = Ours(library, batch, **o), ct.c_double(), []
        for _ in range(60):
            ours.check(library.bench_host_seconds(ours.plan, ct.byref(ours.operands), ours.scratch, ours.bytes, calls,
                                                  ct.byref(seconds)))
            torch.cuda.synchronize()
            times.append(seconds.value)
        print(f"execute(), {name}: {sorted(times)[len(times) // 2] * 1e6:.2f} us of host time")


def main():
    library = ct.CDLL(sys.argv[1])
    library.bench_workspace.restype, library.bench_error.restype = ct.c_int64, ct.c_char_p
    torch.manual_seed(0)
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    for name in sys.argv[2:] or ("peers", "options", "small", "host"):
        {"peers": peers, "options": options, "small": small, "host": host}[name](library)
    state = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"]
    print("SM clock and power just after:", subprocess.run(state, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    main()

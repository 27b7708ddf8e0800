// Which outputs exist, their shapes and strides: the documents' tables.
#include <gtest/gtest.h>

#include "operators/descriptors.hpp"

namespace gemmule::operators_test {
namespace {

std::string text(const Tensor& t) {
  if (!t) return "None";
  std::string out = std::string(name(t.dtype)) + " (";
  for (int i = 0; i < t.rank; ++i)
    out += (i ? "," : "") + std::to_string(t.shape[static_cast<std::size_t>(i)]);
  out += ") (";
  for (int i = 0; i < t.rank; ++i)
    out += (i ? "," : "") + std::to_string(t.strides[static_cast<std::size_t>(i)]);
  return out + ")";
}

TEST(DescribeOutputs, SreluFollowsTheTable) {
  for (const DType a : {fp4, u8, e4m3, e5m2})
    for (const DType c_dtype : {f32, f16, bf16, e4m3, e5m2, fp4})
      for (const DType d : {f32, f16, bf16, e4m3, e5m2, fp4}) {
        const bool fp8 = is_one_of(a, {e4m3, e5m2}), quantize = fp8 && is_one_of(d, {e4m3, e5m2, fp4});
        if (fp8 ? d == f32 : !is_one_of(d, {f32, f16, bf16})) continue;
        SreluCase c;
        c.tail = 256;  // shapes follow A, not the last offset
        c.n = 160;
        c.k = 512;
        c.a = a;
        c.c = c_dtype;
        c.d = d;
        c.scales = quantize;
        const SreluTensors want = c.tensors();
        const SreluResult got = describe_outputs(inputs_of(want), c.opts(), c.call());
        EXPECT_EQ(text(got.c), text(want.c));
        EXPECT_EQ(text(got.d), text(want.d));
        EXPECT_EQ(text(got.d_col), text(want.d_col));
        EXPECT_EQ(text(got.sfd_row), text(want.sfd_row));
        EXPECT_EQ(text(got.sfd_col), text(want.sfd_col));
        EXPECT_EQ(got.d_col.present(), quantize);
        EXPECT_EQ(text(got.amax), is_one_of(d, {bf16, f16}) ? text(want.amax) : "None");
        for (const Tensor* t : {&got.c, &got.d, &got.d_col, &got.sfd_row, &got.sfd_col, &got.amax})
          EXPECT_EQ(t->data, nullptr);
      }
}

TEST(DescribeOutputs, SreluInNumbers) {
  SreluCase c;
  c.groups = {256, 512};
  c.n = 192;
  c.k = 64;
  c.d = fp4;
  c.scales = true;
  const SreluResult r = describe_outputs(inputs_of(c.tensors()), c.opts(), c.call());
  EXPECT_EQ(text(r.c), "bfloat16 (768,192,1) (192,1,147456)");
  EXPECT_EQ(text(r.d), "float4_e2m1fn_x2 (768,96,1) (96,1,73728)");
  EXPECT_EQ(text(r.sfd_row), "float8_e8m0fnu (32,4,6,4,2,1) (16,4,1024,1,512,6144)");
  EXPECT_EQ(text(r.sfd_col), "float8_e8m0fnu (32,4,2,4,6,1) (16,4,3072,1,512,6144)");
  EXPECT_EQ(text(r.amax), "None");
  c.d = bf16;
  c.scales = false;
  EXPECT_EQ(text(describe_outputs(inputs_of(c.tensors()), c.opts(), c.call()).amax), "float32 (2,1) (1,1)");
}

TEST(DescribeOutputs, DgluFollowsTheTable) {
  for (const DType a : {bf16, fp4, u8, e4m3, e5m2})
    for (const DType d : {f32, f16, bf16, e4m3, e5m2})
      for (const bool dbias : {false, true}) {
        const bool fp8 = is_one_of(a, {e4m3, e5m2});
        if (fp8 != is_one_of(d, {e4m3, e5m2})) continue;
        DgluCase c;
        c.tail = 256;
        c.n = 160;
        c.k = 512;
        c.a = a;
        c.d = d;
        c.scales = fp8;
        c.dbias = dbias;
        HostMemory memory;
        DgluTensors want = c.tensors();
        want.dprob.data = memory.allocate(want.dprob.bytes());
        const DgluResult got = describe_outputs(inputs_of(want), c.opts(), c.call());
        EXPECT_EQ(text(got.d_row), text(want.d_row));
        // Without scales the block-scaled call returns d_row for d_col; BF16 has none.
        EXPECT_EQ(text(got.d_col), a == bf16 ? "None" : text(want.d_row));
        EXPECT_EQ(text(got.sfd_row), text(want.sfd_row));
        EXPECT_EQ(text(got.sfd_col), text(want.sfd_col));
        EXPECT_EQ(text(got.dbias), text(want.dbias));
        EXPECT_EQ(text(got.amax), a != bf16 && is_one_of(d, {bf16, f16}) ? text(want.amax) : "None");
        EXPECT_EQ(got.dprob.data, want.dprob.data);  // the caller's own
      }
}

TEST(DescribeOutputs, DgluInNumbers) {
  DgluCase c;
  c.groups = {256, 512};
  c.n = 96;
  c.k = 64;
  c.d = e5m2;
  c.scales = c.dbias = true;
  const DgluResult r = describe_outputs(inputs_of(c.tensors()), c.opts(), c.call());
  EXPECT_EQ(text(r.d_row), "float8_e5m2 (768,192,1) (192,1,147456)");
  EXPECT_EQ(text(r.d_col), "float8_e5m2 (768,192,1) (192,1,147456)");
  EXPECT_EQ(text(r.dbias), "bfloat16 (2,192,1) (192,1,1)");
  EXPECT_EQ(text(r.sfd_row), "float8_e8m0fnu (32,4,6,4,2,1) (16,4,1024,1,512,6144)");
  EXPECT_EQ(text(r.sfd_col), "float8_e8m0fnu (32,4,2,4,6,1) (16,4,3072,1,512,6144)");
  c.a = fp4;
  c.d = bf16;
  c.scales = false;
  EXPECT_EQ(text(describe_outputs(inputs_of(c.tensors()), c.opts(), c.call()).amax),
            "float32 (2,2,1) (2,1,1)");
}

TEST(DescribeOutputs, NormConstIsIgnoredWhereNoScalesAreGenerated) {
  SreluCase s;
  SreluTensors t = inputs_of(s.tensors());
  t.norm_const = Tensor(nullptr, DType::int64, {7});
  EXPECT_EQ(failure([&] { describe_outputs(t, s.opts(), s.call()); }), "");
  DgluCase d;
  d.a = fp4;
  DgluTensors u = inputs_of(d.tensors());
  u.norm_const = t.norm_const;
  EXPECT_EQ(failure([&] { describe_outputs(u, d.opts(), d.call()); }), "");
  d.a = e4m3;  // and so the default bf16 D is what is wrong with FP8 input
  EXPECT_NE(failure([&] {
              DgluTensors v = inputs_of(d.tensors());
              v.norm_const = t.norm_const;
              describe_outputs(v, d.opts(), d.call());
            }).find("d_dtype: bfloat16, expected one of float8_e4m3fn, float8_e5m2 with FP8 input"),
            std::string::npos);
}

}  // namespace
}  // namespace gemmule::operators_test

// Self-attention in float32 and bfloat16 against float64: values and gradients, and its loops for
// every instruction set.
#include "framework/nn/fused/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "framework/nn/flops.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/loops/attention.h"
#include "framework/nn/fused/operator.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

float* floats(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }
template <class T>
T* values_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

constexpr std::array kFormats = {at::kFloat, at::kBFloat16};

/// f.operator()<T>() for how the loops store that format.
template <class F>
void as_stored(at::ScalarType format, const F& f) {
  SCOPED_TRACE(format);
  format == at::kFloat ? f.template operator()<float>() : f.template operator()<loops::BFloat16>();
}

/// A relative error: bfloat16's, or what float32's sums have of rounding.
double allowed(at::ScalarType format, double of_bfloat16) {
  return format == at::kFloat ? 4e-6 : of_bfloat16;
}

int64_t stride_of(int64_t columns) { return (columns + 15) / 16 * 16; }

// --- the loops -----------------------------------------------------------------------------------

class AttentionLoops : public testing::TestWithParam<std::tuple<loops::Isa, at::ScalarType>> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  at::ScalarType format() const { return std::get<1>(GetParam()); }
  template <class T>
  loops::AttentionLoops<T> loops_of() const {
    return loops::attention_table(std::get<0>(GetParam())).of<T>();
  }
};

/// [rows, columns], behind which nothing may count.
at::Tensor with_rest(const at::Tensor& values) {
  at::Tensor whole = at::full({values.size(0), stride_of(values.size(1))},
                              std::numeric_limits<double>::quiet_NaN(), values.options());
  whole.narrow(1, 0, values.size(1)).copy_(values);
  return whole;
}

/// Whether query r sees key c of [rows, columns], of which row 0 sees the first `seen`.
at::Tensor seen_by(int64_t rows, int64_t columns, int64_t seen, int64_t step) {
  return at::arange(columns) < (at::arange(rows) * step + seen).unsqueeze(1);
}

TEST_P(AttentionLoops, Softmax) {
  for (const int64_t columns : {1, 16, 37, 200}) {
    for (const int64_t step : {0, 1}) {
      SCOPED_TRACE(testing::Message() << columns << " columns, step " << step);
      const int64_t rows = 5, seen = step == 0 ? columns : std::max<int64_t>(1, columns - 3);
      const float scale = 0.3F;
      const at::Tensor scores = at::randn({rows, columns}) * 20, all = with_rest(scores);
      const at::Tensor weights = at::full_like(all, 7, format());
      const at::Tensor sums = at::empty({2, rows});
      as_stored(format(), [&]<class T>() {
        loops_of<T>().softmax({rows, columns, scale}, seen, step, floats(all),
                              values_of<T>(weights), floats(sums), floats(sums) + rows);
      });
      const at::Tensor visible =
          at::where(seen_by(rows, columns, seen, step), scores.to(at::kDouble) * scale,
                    -std::numeric_limits<double>::infinity());
      const at::Tensor found =
          weights.narrow(1, 0, columns).to(at::kDouble) / sums[0].unsqueeze(1).to(at::kDouble);
      EXPECT_LE((found - visible.softmax(1)).abs().max().item<double>(), allowed(format(), 4e-3));
      EXPECT_TRUE(found.masked_select(seen_by(rows, columns, seen, step).logical_not())
                      .eq(0)
                      .all()
                      .item<bool>());
      EXPECT_LE(relative_error(sums[1], visible.logsumexp(1)), allowed(format(), 1e-4));
      EXPECT_TRUE(
          weights.narrow(1, columns, stride_of(columns) - columns).eq(0).all().item<bool>());
    }
  }
}

TEST_P(AttentionLoops, NumbersThatAreNoneAreNotLost) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), kInfinity}) {
    for (const int64_t place : {0, 7, 19}) {
      at::Tensor scores = at::zeros({1, 32});
      scores[0][place] = bad;
      const at::Tensor weights = at::empty({1, 32}, format()), sums = at::empty({2});
      as_stored(format(), [&]<class T>() {
        loops_of<T>().softmax({1, 20, 1.F}, 20, 0, floats(scores), values_of<T>(weights),
                              floats(sums), floats(sums) + 1);
      });
      EXPECT_TRUE(std::isnan(sums[0].item<float>())) << bad << " at " << place;
    }
  }
}

TEST_P(AttentionLoops, RowsAreMultipliedAndDivided) {
  for (const int64_t columns : {2, 16, 50}) {
    SCOPED_TRACE(columns);
    const at::Tensor products = at::randn({3, columns}), sums = at::rand({3}) + 1;
    const at::Tensor a = at::randn({3, columns + 6}).to(format());
    const at::Tensor b = at::randn({3, columns + 2}).to(format());
    const at::Tensor dots = at::empty({3}), divided = at::zeros({3, columns + 4}, format());
    as_stored(format(), [&]<class T>() {
      loops_of<T>().dots(3, columns, values_of<T>(a), columns + 6, values_of<T>(b), columns + 2,
                         floats(dots));
      loops_of<T>().normalize(3, columns, floats(products), floats(sums), values_of<T>(divided),
                              columns + 4);
    });
    const auto exact = [&](const at::Tensor& t) { return t.narrow(1, 0, columns).to(at::kDouble); };
    EXPECT_LE((dots - (exact(a) * exact(b)).sum(1)).abs().max().item<double>(), 1e-4);
    EXPECT_LE(relative_error(divided.narrow(1, 0, columns), products / sums.unsqueeze(1)),
              allowed(format(), 4e-3));
    EXPECT_TRUE(divided.narrow(1, columns, 4).eq(0).all().item<bool>());
  }
}

TEST_P(AttentionLoops, GradientsOfScores) {
  for (const int64_t columns : {3, 16, 70}) {
    for (const int64_t step : {0, 1}) {
      SCOPED_TRACE(testing::Message() << columns << " columns, step " << step);
      const int64_t rows = 20, stride = stride_of(columns);
      const float scale = 0.3F;
      const at::Tensor scores = at::randn({rows, columns}), of_weights = at::randn({rows, columns});
      const at::Tensor all = with_rest(scores), of_all = with_rest(of_weights);
      const at::Tensor of_columns = at::zeros({2, stride});  // log_sums, dots
      of_columns.narrow(1, 0, columns).copy_(at::randn({2, columns}) + 1);
      const at::Tensor weights = at::full({rows, stride}, 7, format());
      const at::Tensor of_scores = at::full({rows, stride}, 7, format());
      as_stored(format(), [&]<class T>() {
        loops_of<T>().gradients({rows, columns, scale}, step, floats(all), floats(of_all),
                                floats(of_columns), floats(of_columns) + stride,
                                values_of<T>(weights), values_of<T>(of_scores));
      });
      const at::Tensor seen = at::arange(columns) >= at::arange(rows).unsqueeze(1) * step;
      const auto of_column = [&](int64_t i) {
        return of_columns[i].narrow(0, 0, columns).to(at::kDouble);
      };
      const at::Tensor expected = at::where(seen, (scores * scale - of_column(0)).exp(), 0.0);
      EXPECT_LE(relative_error(weights.narrow(1, 0, columns), expected), allowed(format(), 4e-3));
      EXPECT_LE(relative_error(of_scores.narrow(1, 0, columns),
                               expected * (of_weights - of_column(1)) * scale),
                allowed(format(), 4e-3));
      for (const at::Tensor& one : {weights, of_scores}) {
        EXPECT_TRUE(one.narrow(1, columns, stride - columns).eq(0).all().item<bool>());
      }
    }
  }
}

TEST_P(AttentionLoops, Float32StaysInPlace) {
  if (format() != at::kFloat) return;
  const loops::AttentionLoops<float> loops = loops_of<float>();
  const int64_t rows = 3, columns = 21;
  const at::Tensor scores = with_rest(at::randn({rows, columns}));
  const at::Tensor of_weights = with_rest(at::randn({rows, columns}));
  const at::Tensor apart = at::empty_like(scores), of_scores = at::empty_like(scores);
  const at::Tensor sums = at::empty({2, rows}), of_columns = at::ones({2, scores.size(1)});
  const auto softmax = [&](const at::Tensor& from, const at::Tensor& to) {
    loops.softmax({rows, columns, 1.F}, 19, 1, floats(from), floats(to), floats(sums),
                  floats(sums) + rows);
  };
  const auto gradients = [&](const at::Tensor& from, const at::Tensor& of_from,
                             const at::Tensor& to, const at::Tensor& of_to) {
    loops.gradients({rows, columns, 1.F}, 1, floats(from), floats(of_from), floats(of_columns),
                    floats(of_columns) + scores.size(1), floats(to), floats(of_to));
  };
  const at::Tensor weights = scores.clone();
  softmax(weights, apart);
  softmax(weights, weights);
  EXPECT_TRUE(weights.equal(apart));
  gradients(scores, of_weights, apart, of_scores);
  gradients(scores, of_weights, scores, of_weights);
  EXPECT_TRUE(scores.equal(apart));
  EXPECT_TRUE(of_weights.equal(of_scores));
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, AttentionLoops,
                         testing::Combine(testing::ValuesIn(available_isas()),
                                          testing::ValuesIn(kFormats)));

// --- attention -----------------------------------------------------------------------------------

/// The formats that this CPU has instructions for; of others there is nothing to be tested.
std::vector<at::ScalarType> fused_formats() {
  at::manual_seed(2);
  std::vector<at::ScalarType> formats;
  if (cpu::multiplies_float_blocks()) formats.push_back(at::kFloat);
  if (cpu::multiplies_bf16_pairs() && multiplies_bf16_faster()) formats.push_back(at::kBFloat16);
  return formats;
}

struct Result {
  at::Tensor y, qkv_gradient;
};

Result attend(const at::Tensor& qkv, const SelfAttention& attention, const at::Tensor& g,
              Fused when) {
  const at::Tensor leaf = qkv.detach().clone().requires_grad_();
  const at::Tensor y = self_attention(leaf, attention, when, /*is_training=*/true);
  EXPECT_EQ(y.grad_fn()->name().find("FusedSelfAttention") != std::string::npos,
            when == Fused::kAlways);
  y.backward(g);
  return {y.detach(), leaf.grad()};
}

// One token, odd numbers, blocks of 48 and 64 and their neighbours, some blocks; heads of two
// values, fewer than a vector has, and more than 64; of float32 an odd number.
TEST(SelfAttention, IsExactToRounding) {
  using Case = std::tuple<at::ScalarType, int64_t, int64_t, int64_t>;
  std::vector<Case> cases;
  for (const at::ScalarType format : fused_formats()) {
    for (const int64_t length : {1, 2, 7, 47, 48, 49, 63, 64, 65, 197}) {
      for (const auto& [heads, size] : {std::tuple(1, 2), {3, 10}, {2, 64}, {1, 96}}) {
        cases.emplace_back(format, length, heads, size);
      }
      if (format == at::kFloat) cases.emplace_back(format, length, 2, 7);
    }
  }
  for (const auto& [format, length, heads, size] : cases) {
    for (const bool is_causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << format << ", " << length << " tokens, " << heads
                                      << " heads of " << size << (is_causal ? ", causal" : ""));
      const at::Tensor qkv = at::randn({2, length, 3 * heads * size}).to(format) * 2;
      const at::Tensor g = at::randn({2, length, heads * size}).to(format);
      const SelfAttention attention = {heads, is_causal};
      const Result found = attend(qkv, attention, g, Fused::kAlways);
      const Result expected =
          attend(qkv.to(at::kDouble), attention, g.to(at::kDouble), Fused::kNever);
      EXPECT_EQ(found.y.sizes(), g.sizes());
      EXPECT_EQ(found.y.scalar_type(), format);
      EXPECT_LE(relative_error(found.y, expected.y), allowed(format, 5e-3));
      // Of one token, queries and keys have no gradient but rounding.
      const int64_t first = length == 1 ? 2 * heads * size : 0;
      const auto compared = [&](const at::Tensor& t) {
        return t.narrow(2, first, t.size(2) - first);
      };
      EXPECT_LE(relative_error(compared(found.qkv_gradient), compared(expected.qkv_gradient)),
                allowed(format, 2e-2));
    }
  }
}

TEST(SelfAttention, IsTheSameOnAnyNumberOfThreads) {
  for (const at::ScalarType format : fused_formats()) {
    SCOPED_TRACE(format);
    const at::Tensor qkv = at::randn({3, 70, 3 * 5 * 16}).to(format);
    const at::Tensor g = at::randn({3, 70, 5 * 16}).to(format);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const Result one = attend(qkv, {5, true}, g, Fused::kAlways);
    at::set_num_threads(4);
    const Result four = attend(qkv, {5, true}, g, Fused::kAlways);
    at::set_num_threads(before);
    EXPECT_TRUE(four.y.equal(one.y));
    EXPECT_TRUE(four.qkv_gradient.equal(one.qkv_gradient));
  }
}

TEST(SelfAttention, NumbersThatAreNoneStayInTheirHead) {
  for (const at::ScalarType format : fused_formats()) {
    SCOPED_TRACE(format);
    at::Tensor qkv = at::randn({1, 20, 3 * 2 * 8}).to(format);
    qkv[0][3][16 + 8 + 1] = std::nanf("");  // a key of the second head
    const at::Tensor y = fused_self_attention(qkv, {2});
    EXPECT_TRUE(y.narrow(2, 0, 8).isfinite().all().item<bool>());
    EXPECT_TRUE(y.narrow(2, 8, 8).isnan().all().item<bool>());
  }
}

TEST(SelfAttention, BfloatsMayBeWidened) {
  if (!cpu::multiplies_float_blocks()) return;
  const Bf16Products products(false);
  for (const auto& [length, size] : {std::tuple(1, 3), {50, 7}, {70, 64}}) {
    for (const bool is_causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << length << " tokens, heads of " << size);
      const at::Tensor qkv = at::randn({2, length, 3 * 2 * size}).to(at::kBFloat16);
      const at::Tensor g = at::randn({2, length, 2 * size}).to(at::kBFloat16);
      const Result found = attend(qkv, {2, is_causal}, g, Fused::kAlways);
      const Result exact =
          attend(qkv.to(at::kDouble), {2, is_causal}, g.to(at::kDouble), Fused::kNever);
      EXPECT_EQ(found.y.scalar_type(), at::kBFloat16);
      EXPECT_EQ(found.qkv_gradient.scalar_type(), at::kBFloat16);
      EXPECT_LE(relative_error(found.y, exact.y), 3e-3);
      EXPECT_LE(relative_error(found.qkv_gradient, exact.qkv_gradient), 4e-3);
    }
  }
}

TEST(SelfAttention, OthersAreLeftToLibTorch) {
  const Bf16Products products(true);
  const at::Tensor qkv = at::randn({1, 4, 3 * 2 * 6});
  EXPECT_EQ(has_fused_self_attention(qkv, {2}), cpu::multiplies_float_blocks());
  EXPECT_EQ(has_fused_self_attention(qkv, {4}), cpu::multiplies_float_blocks());  // of 3 values
  EXPECT_EQ(has_fused_self_attention(qkv.to(at::kBFloat16), {2}), cpu::multiplies_bf16_pairs());
  EXPECT_FALSE(has_fused_self_attention(qkv.to(at::kBFloat16), {4}));
  for (const at::ScalarType format : kFormats) {
    const at::Tensor x = qkv.to(format);
    EXPECT_FALSE(has_fused_self_attention(x, {.heads = 2, .dropout = 0.1}));
    EXPECT_FALSE(has_fused_self_attention(x, {5}));
    EXPECT_FALSE(has_fused_self_attention(x.narrow(0, 0, 0), {2}));
    EXPECT_FALSE(has_fused_self_attention(at::empty({1, 2049, 6}, format), {1}));
    EXPECT_FALSE(has_fused_self_attention(at::empty({1, 1, 3 * 258}, format), {1}));
  }
  for (const at::ScalarType format : {at::kDouble, at::kHalf}) {
    EXPECT_FALSE(has_fused_self_attention(qkv.to(format), {2}));
  }
  const amp::Autocast scope(c10::kCPU, {.compute = at::kBFloat16, .autocast = true});
  EXPECT_FALSE(has_fused_self_attention(qkv, {2}));  // autocast rounds it first
}

TEST(SelfAttention, ItsGradientHasNone) {
  for (const at::ScalarType format : fused_formats()) {
    const at::Tensor qkv = at::randn({1, 4, 12}).to(format).requires_grad_();
    const at::Tensor y = fused_self_attention(qkv, {2});
    EXPECT_THROW(torch::autograd::grad({y.sum()}, {qkv}, {}, /*retain_graph=*/true,
                                       /*create_graph=*/true),
                 c10::NotImplementedError);
  }
}

TEST(SelfAttention, ShapesAreKnownWithoutComputing) {
  const at::Tensor qkv = at::empty({2, 5, 36}, at::kBFloat16).to(at::kMeta);
  const auto [out, log_sums] =
      find_operator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, bool)>(
          "brim::self_attention")
          .call(qkv, 3, true);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({2, 5, 12}));
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_EQ(log_sums.sizes(), at::IntArrayRef({2, 3, 5}));
  EXPECT_EQ(log_sums.scalar_type(), at::kFloat);
  const at::Tensor gradient =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, int64_t, bool)>("brim::self_attention_backward")
          .call(out, qkv, out, log_sums, 3, true);
  EXPECT_EQ(gradient.sizes(), qkv.sizes());
}

TEST(SelfAttention, ItsProductsAreCountedAsLibTorchs) {
  const at::Tensor qkv = at::empty({2, 5, 36}), head = at::empty({2, 3, 5, 4});
  const auto flops = [](const char* name, const std::vector<c10::IValue>& inputs) {
    return product_flops(name)(c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  };
  EXPECT_EQ(flops("brim::self_attention", {qkv, 3, true}),
            flops("aten::_scaled_dot_product_flash_attention_for_cpu", {head, head, head}));
  EXPECT_EQ(flops("brim::self_attention_backward", {head, qkv}),
            flops("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                  {head, head, head, head}));
}

}  // namespace
}  // namespace brim::nn

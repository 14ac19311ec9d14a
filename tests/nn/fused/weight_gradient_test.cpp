// The gradients of weights that many rows of bfloat16 are multiplied by, in pairs and by blocks,
// against float64.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "framework/nn/flops.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/fused/weight_gradient_cpu.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

at::Tensor bf16(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

loops::BFloat16* values_of(const at::Tensor& tensor) {
  return static_cast<loops::BFloat16*>(tensor.mutable_data_ptr());
}

// Whole blocks of rows and vectors, less and more; not what lies beside the sums.
TEST(WeightGradient, LoopsMultiplyOverRows) {
  at::manual_seed(1);
  for (const loops::Isa isa : available_isas()) {
    const loops::PairLoops table = loops::pair_table(isa);
    EXPECT_EQ(table.multiply_over_rows != nullptr, isa == loops::Isa::kAvx512Bf16);
    if (table.multiply_over_rows == nullptr) continue;
    for (const int64_t pairs : {1, 9}) {
      for (const int64_t rows : {1, 4, 7}) {
        for (const int64_t columns : {1, 16, 40, 64, 100}) {
          SCOPED_TRACE(testing::Message() << pairs << " " << rows << " " << columns);
          const at::Tensor left = bf16({pairs, rows + 1, 2});
          const at::Tensor right = bf16({pairs, columns + 16, 2});
          const auto of = [&](const at::Tensor& factor, int64_t count) {
            return factor.narrow(1, 0, count).transpose(1, 2).flatten(0, 1).to(at::kDouble);
          };
          const at::Tensor once = of(left, rows).t().mm(of(right, columns));
          at::Tensor sums = at::full({rows + 1, columns + 1}, 7.F);
          for (const bool adds : {false, true}) {
            table.multiply_over_rows({.rows = rows,
                                      .columns = columns,
                                      .pairs = pairs,
                                      .left = values_of(left),
                                      .left_stride = 2 * (rows + 1),
                                      .right = values_of(right),
                                      .right_stride = 2 * (columns + 16),
                                      .sum = sums.mutable_data_ptr<float>(),
                                      .sum_stride = columns + 1,
                                      .adds = adds,
                                      .ahead = values_of(left),
                                      .ahead_stride = 0});
            const at::Tensor found = sums.narrow(0, 0, rows).narrow(1, 0, columns);
            EXPECT_LE(relative_error(found, once * (adds ? 2 : 1)), 1e-6);
          }
          EXPECT_TRUE(sums.select(0, rows).eq(7).all().item<bool>());
          EXPECT_TRUE(sums.select(1, columns).eq(7).all().item<bool>());
        }
      }
    }
  }
}

struct Form {
  const char* name;
  bool is_there, takes_odd_columns;
  cpu::WeightGradientsOf* of;
};

std::vector<Form> forms() {
  std::vector<Form> all = {
      {"in pairs", cpu::pair_loops().multiply_over_rows != nullptr, true,
       cpu::weight_gradients_in_pairs},
      {"by blocks", cpu::multiplies_bf16_pairs(), false, cpu::weight_gradients_by_blocks}};
  std::erase_if(all, [](const Form& form) { return !form.is_there; });
  return all;
}

// Few rows and an odd number of them, one chunk and several, one part and sixteen; either factor
// the wider one, as narrow as they come, of whole panels and not.
TEST(WeightGradient, IsExactToFloat32sRounding) {
  at::manual_seed(2);
  for (const Form& form : forms()) {
    for (const int64_t rows : {2, 257, 2050, 20001}) {
      for (const auto& [outputs, inputs] : std::vector<std::pair<int64_t, int64_t>>{
               {2, 6}, {64, 130}, {330, 16}, {5, 3}, {64, 1}}) {
        if (!form.takes_odd_columns && (outputs % 2 != 0 || inputs % 2 != 0)) continue;
        SCOPED_TRACE(testing::Message()
                     << form.name << " " << rows << " " << outputs << " " << inputs);
        const at::Tensor gradient = bf16({rows, outputs}), x = bf16({rows, inputs});
        const at::Tensor exact = gradient.to(at::kDouble).t().mm(x.to(at::kDouble));
        for (const bool is_transposed : {false, true}) {
          const cpu::WeightGradients found = form.of(gradient, x, is_transposed, true);
          EXPECT_EQ(found.weight.scalar_type(), at::kFloat);
          EXPECT_EQ(found.weight.sizes(), exact.sizes());
          EXPECT_TRUE((is_transposed ? found.weight.t() : found.weight).is_contiguous());
          EXPECT_LE(relative_error(found.weight, exact), 2e-6);
          EXPECT_LE(relative_error(found.bias, gradient.to(at::kDouble).sum(0)), 2e-6);
          EXPECT_FALSE(form.of(gradient, x, is_transposed, false).bias.defined());
        }
      }
    }
  }
}

TEST(WeightGradient, IsTheSameOnAnyNumberOfThreads) {
  at::manual_seed(3);
  const int before = at::get_num_threads();
  for (const Form& form : forms()) {
    for (const bool is_wide : {false, true}) {
      const at::Tensor gradient = bf16({20001, is_wide ? 200 : 36});
      const at::Tensor x = bf16({20001, is_wide ? 36 : 200});
      at::set_num_threads(1);
      const cpu::WeightGradients one = form.of(gradient, x, false, true);
      at::set_num_threads(3);
      const cpu::WeightGradients three = form.of(gradient, x, false, true);
      EXPECT_TRUE(three.weight.equal(one.weight)) << form.name;
      EXPECT_TRUE(three.bias.equal(one.bias)) << form.name;
    }
  }
  at::set_num_threads(before);
}

TEST(WeightGradient, AsAnOperatorItIsCheckedAndCounted) {
  const auto operation =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&)>("brim::weight_gradient");
  EXPECT_THROW(operation.call(bf16({4, 2}), at::randn({4, 3})), c10::Error);
  const at::Tensor shape = operation.call(bf16({4, 2}).to(at::kMeta), bf16({4, 3}).to(at::kMeta));
  EXPECT_EQ(shape.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(shape.scalar_type(), at::kFloat);
  if (!cpu::multiplies_over_rows()) return;
  EXPECT_EQ(operation.call(bf16({4, 2}), bf16({4, 3})).sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THROW(operation.call(bf16({4, 2}), bf16({6, 3})), c10::Error);
  EXPECT_THROW(operation.call(bf16({4, 2}), bf16({3, 4}).t()), c10::Error);
  EXPECT_THROW(operation.call(bf16({0, 2}), bf16({0, 3})), c10::Error);
  const std::array<const c10::IValue, 2> inputs = {bf16({4, 2}), bf16({4, 3})};
  EXPECT_EQ(product_flops("brim::weight_gradient")(inputs), 2 * 4 * 2 * 3);
}

}  // namespace
}  // namespace brim::nn

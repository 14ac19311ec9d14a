#include "framework/nn/fused/convolution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "framework/nn/fused/implicit_gemm_cpu.h"
#include "framework/nn/fused/operator.h"
#include "framework/nn/fused/patches_cpu.h"
#include "framework/nn/fused/upcast.h"
#include "framework/nn/fused/weight_gradient_cpu.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

cpu::Patches patches_of(const at::Tensor& x, const at::Tensor& weight,
                        const ConvolutionSteps& steps) {
  return {.image = {x.size(0), x.size(1), x.size(2), x.size(3)},
          .kernel = {weight.size(2), weight.size(3)},
          .steps = steps};
}

/// A channels_last weight [O, C, KH, KW] as a matrix [O, KH · KW · C].
at::Tensor matrix_of(const at::Tensor& weight) {
  return weight.permute({0, 2, 3, 1}).view({weight.size(0), -1});
}

/// Channels_last images [N, C, H, W] as [N · H · W, C].
at::Tensor pixels_of(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
}

/// Its inverse, for images of that height and width.
at::Tensor images_of(const at::Tensor& pixels, int64_t height, int64_t width) {
  return pixels.view({-1, height, width, pixels.size(1)}).permute({0, 3, 1, 2});
}

/// A matrix [O, KH · KW · C] as the weight that it is.
at::Tensor weight_of(const at::Tensor& matrix, const at::Tensor& like) {
  return matrix.view({like.size(0), like.size(2), like.size(3), like.size(1)})
      .permute({0, 3, 1, 2});
}

// --- implicit GEMM -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("implicit_gemm(Tensor x, Tensor weight, int[] steps) -> Tensor");
  library.def(
      "implicit_gemm_of_input(Tensor gradient, Tensor weight, int[] steps, Tensor(a!) x_gradient, "
      "bool adds) -> ()");
  library.def(
      "implicit_gemm_of_weight(Tensor gradient, Tensor x, Tensor weight, int[] steps) -> "
      "Tensor");
}

/// Of images like `x`; an error where cpu::implicit_gemm() doesn't take them or the others.
cpu::Patches checked_patches(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef steps,
                             const at::Tensor* gradient = nullptr) {
  const auto fits = [](const at::Tensor& t) {
    return t.dim() == 4 && t.numel() > 0 && t.scalar_type() == at::kFloat &&
           t.is_contiguous(at::MemoryFormat::ChannelsLast);
  };
  TORCH_CHECK(cpu::multiplies_float_tiles(),
              "implicit_gemm: expected a CPU with AVX2 and no AVX-512");
  TORCH_CHECK(fits(x) && fits(weight) && x.size(1) == weight.size(1) && steps.size() == 6,
              "implicit_gemm: expected float32 images [N, C, H, W] and a weight [O, C, KH, KW], "
              "both channels_last, found ",
              x.scalar_type(), " ", x.sizes(), " and ", weight.scalar_type(), " ", weight.sizes());
  const cpu::Patches patches = patches_of(x, weight, steps_of(steps.vec()));
  TORCH_CHECK(patches.is_valid(), "implicit_gemm: a kernel of ", weight.sizes(), " with steps ",
              steps, " doesn't fit images ", x.sizes());
  const at::DimVector places = {x.size(0), weight.size(0), patches.places(0), patches.places(1)};
  TORCH_CHECK(gradient == nullptr || (fits(*gradient) && gradient->sizes() == places),
              "implicit_gemm: expected a channels_last gradient ", places);
  return patches;
}

at::Tensor implicit_gemm(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef steps) {
  const cpu::Patches patches = checked_patches(x, weight, steps);
  return images_of(cpu::implicit_gemm(pixels_of(x), matrix_of(weight), std::nullopt, patches),
                   patches.places(0), patches.places(1));
}

void implicit_gemm_of_input(const at::Tensor& gradient, const at::Tensor& weight,
                            at::IntArrayRef steps, const at::Tensor& x_gradient, bool adds) {
  const cpu::Patches patches = checked_patches(x_gradient, weight, steps, &gradient);
  cpu::implicit_gemm_of_images(pixels_of(gradient), matrix_of(weight), patches,
                               pixels_of(x_gradient), adds);
}

at::Tensor implicit_gemm_of_weight(const at::Tensor& gradient, const at::Tensor& x,
                                   const at::Tensor& weight, at::IntArrayRef steps) {
  const cpu::Patches patches = checked_patches(x, weight, steps, &gradient);
  return weight_of(cpu::implicit_gemm_of_weight(pixels_of(gradient), pixels_of(x), patches),
                   weight);
}

TORCH_LIBRARY_IMPL(brim, CPU, library) {
  library.impl("implicit_gemm", implicit_gemm);
  library.impl("implicit_gemm_of_input", implicit_gemm_of_input);
  library.impl("implicit_gemm_of_weight", implicit_gemm_of_weight);
}

at::Tensor implicit_gemm_shape(const at::Tensor& x, const at::Tensor& weight,
                               at::IntArrayRef steps) {
  const cpu::Patches patches = patches_of(x, weight, steps_of(steps.vec()));
  return at::empty({x.size(0), weight.size(0), patches.places(0), patches.places(1)},
                   x.options().memory_format(at::MemoryFormat::ChannelsLast));
}

void implicit_gemm_of_input_shape(const at::Tensor& /*gradient*/, const at::Tensor& /*weight*/,
                                  at::IntArrayRef /*steps*/, const at::Tensor& /*x_gradient*/,
                                  bool /*adds*/) {}

at::Tensor implicit_gemm_of_weight_shape(const at::Tensor& /*gradient*/, const at::Tensor& /*x*/,
                                         const at::Tensor& weight, at::IntArrayRef /*steps*/) {
  return at::empty_like(weight);
}

TORCH_LIBRARY_IMPL(brim, Meta, library) {
  library.impl("implicit_gemm", implicit_gemm_shape);
  library.impl("implicit_gemm_of_input", implicit_gemm_of_input_shape);
  library.impl("implicit_gemm_of_weight", implicit_gemm_of_weight_shape);
}

/// Whether those operators take a product in this format.
bool takes_implicit_gemm(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && cpu::multiplies_float_tiles();
}

// --- products of matrices ------------------------------------------------------------------------

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps) {
  if (takes_implicit_gemm(x)) {
    static const auto operation =
        find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, at::IntArrayRef)>(
            "brim::implicit_gemm");
    return operation.call(x, weight, to_list(steps));
  }
  const cpu::Patches patches = patches_of(x, weight, steps);
  return images_of(at::mm(cpu::patch_rows(x, patches), matrix_of(weight).t()), patches.places(0),
                   patches.places(1));
}

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("weight_gradient(Tensor gradient, Tensor x) -> Tensor");
}

/// gradientᵀ · x: [N, O] by [N, I] to [O, I] in float32; both bfloat16, without gaps.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  const auto fits = [](const at::Tensor& t) {
    return t.dim() == 2 && t.numel() > 0 && t.scalar_type() == at::kBFloat16 && t.is_contiguous();
  };
  TORCH_CHECK(cpu::multiplies_over_rows(),
              "weight_gradient: expected a CPU with AVX512-BF16 and without AMX");
  TORCH_CHECK(
      fits(gradient) && fits(x) && gradient.size(0) == x.size(0),
      "weight_gradient: expected bfloat16 gradient [N, O] and x [N, I] without gaps, found ",
      gradient.scalar_type(), " ", gradient.sizes(), " and ", x.scalar_type(), " ", x.sizes());
  return cpu::weight_gradients_in_pairs(gradient, x, /*is_transposed=*/false, /*of_bias=*/false)
      .weight;
}

at::Tensor weight_gradient_shape(const at::Tensor& gradient, const at::Tensor& x) {
  return at::empty({gradient.size(1), x.size(1)}, x.options().dtype(at::kFloat));
}

TORCH_LIBRARY_IMPL(brim, CPU, library) { library.impl("weight_gradient", weight_gradient); }
TORCH_LIBRARY_IMPL(brim, Meta, library) { library.impl("weight_gradient", weight_gradient_shape); }

/// Whether the CPU has that operator's kernel for factors of this format.
bool has_gradient_kernel(at::ScalarType type) {
  return type == at::kBFloat16 && cpu::multiplies_over_rows();
}

/// Of a weight [O, C, KH, KW], the gradient: of y's pixels [N, O] and what they are products of
/// [N, KH · KW · C].
at::Tensor weight_gradient_of(const at::Tensor& pixels, const at::Tensor& rows,
                              const at::Tensor& weight) {
  static const auto operation =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&)>("brim::weight_gradient");
  const bool has_kernel = has_gradient_kernel(rows.scalar_type());
  return weight_of(
      has_kernel ? operation.call(pixels, rows).to(at::kBFloat16) : at::mm(pixels.t(), rows),
      weight);
}

/// x_gradient = the gradient's product with the weight, plus what it was where `adds`; all
/// channels_last.
void put_implicit_gemm(const at::Tensor& gradient, const at::Tensor& weight,
                       const ConvolutionSteps& steps, const at::Tensor& x_gradient, bool adds) {
  static const auto operation =
      find_operator<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, const at::Tensor&,
                         bool)>("brim::implicit_gemm_of_input");
  operation.call(gradient, weight, to_list(steps), x_gradient, adds);
}

ConvolutionGradients implicit_gemm_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                             const at::Tensor& weight,
                                             const ConvolutionSteps& steps, bool of_x,
                                             bool of_weight) {
  static const auto operation =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               at::IntArrayRef)>("brim::implicit_gemm_of_weight");
  ConvolutionGradients gradients;
  if (of_x) {
    gradients.x = at::empty_like(x);
    put_implicit_gemm(gradient, weight, steps, gradients.x, /*adds=*/false);
  }
  if (of_weight) gradients.weight = operation.call(gradient, x, weight, to_list(steps));
  return gradients;
}

ConvolutionGradients product_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                       const at::Tensor& weight, const ConvolutionSteps& steps,
                                       bool of_x, bool of_weight) {
  const at::Tensor dense = gradient.contiguous(at::MemoryFormat::ChannelsLast);
  if (takes_implicit_gemm(x)) {
    return implicit_gemm_gradients(dense, x, weight, steps, of_x, of_weight);
  }
  const cpu::Patches patches = patches_of(x, weight, steps);
  const at::Tensor pixels = pixels_of(dense);
  ConvolutionGradients gradients;
  if (of_x) gradients.x = cpu::sum_of_patch_rows(at::mm(pixels, matrix_of(weight)), patches);
  if (of_weight) {
    gradients.weight = weight_gradient_of(pixels, cpu::patch_rows(x, patches), weight);
  }
  return gradients;
}

bool is_upcast(const at::Tensor& x, const at::Tensor& weight) {
  return x.scalar_type() != weight.scalar_type();
}

class FusedConvolution : public Function<FusedConvolution> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const ConvolutionSteps& steps, int64_t groups, ConvolutionForm form) {
    const ForwardPass pass;
    const at::Tensor by = factor(weight, x);
    context->save_for_backward({x, by});
    context->saved_data["steps"] = to_list(steps);
    context->saved_data["groups"] = groups;
    context->saved_data["form"] = static_cast<int64_t>(form);
    return convolution(x, by, steps, groups, form);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("convolution");
    const auto saved = context->get_saved_variables();
    const auto [x_gradient, weight_gradient] = convolution_gradients(
        gradients[0].to(saved[0].scalar_type()), saved[0], saved[1],
        steps_of(context->saved_data["steps"].toIntVector()), context->saved_data["groups"].toInt(),
        static_cast<ConvolutionForm>(context->saved_data["form"].toInt()),
        context->needs_input_grad(0), context->needs_input_grad(1));
    return {x_gradient, weight_gradient, {}, {}, {}};
  }
};

/// gradient · weight + what x's gradient is so far, in that one's memory where no one else has it.
at::Tensor added_product(const at::Tensor& gradient, const at::Tensor& weight,
                         const ConvolutionSteps& steps, const at::Tensor& so_far) {
  const at::Tensor sum = so_far.contiguous(at::MemoryFormat::ChannelsLast);
  // Held by the caller's list and `sum`, and its memory by itself.
  const bool is_ours =
      !sum.is_same(so_far) || (so_far.use_count() == 2 && so_far.storage().use_count() == 1);
  if (takes_implicit_gemm(sum)) {
    const at::Tensor after = is_ours ? sum : sum.clone();
    put_implicit_gemm(gradient, weight, steps, after, /*adds=*/true);
    return after;
  }
  const at::Tensor before = pixels_of(sum);
  const at::Tensor after = is_ours ? sum : at::empty_like(sum);
  at::Tensor rows = pixels_of(after);
  at::addmm_out(rows, before, pixels_of(gradient), matrix_of(weight));
  return after;
}

class FusedBranch : public Function<FusedBranch> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& weight, const ConvolutionSteps& steps) {
    const ForwardPass pass;
    context->set_materialize_grads(false);
    context->save_for_backward({x, weight});
    context->saved_data["steps"] = to_list(steps);
    return {product(x, weight, steps), x};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("convolution");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &of_y = gradients[0],
                     &so_far = gradients[1];
    if (!of_y.defined()) return {so_far, {}, {}};
    const bool adds = so_far.defined() && so_far.scalar_type() == x.scalar_type();
    const at::Tensor dense = of_y.to(x.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
    const ConvolutionSteps steps = steps_of(context->saved_data["steps"].toIntVector());
    auto [of_x, of_weight] =
        product_gradients(dense, x, weight, steps, !adds, context->needs_input_grad(1));
    if (adds) {
      of_x = added_product(dense, weight, steps, so_far);
    } else if (so_far.defined()) {
      of_x = of_x + so_far;
    }
    return {of_x, of_weight, {}};
  }
};

}  // namespace

bool has_convolution_product(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps, int64_t groups) {
  const auto fits = [](const at::Tensor& t) {
    return t.is_cpu() && t.dim() == 4 && t.numel() > 0 && has_fused_kernels(t) &&
           t.is_contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::ScalarType type = type_of_product(x);
  if (groups != 1 || type == at::kHalf || type != type_of_product(weight) || !fits(x) ||
      !fits(weight) || x.size(1) != weight.size(1)) {
    return false;
  }
  const cpu::Patches patches = patches_of(x, weight, steps);
  const bool is_float = type == at::kFloat || has_upcast_convolution(x, weight);
  return patches.is_valid() && (patches.are_pixels() || patches.rows() <= 4 * weight.size(0) ||
                                (is_float && cpu::multiplies_float_tiles()));
}

bool has_weight_gradient(const at::Tensor& x, const at::Tensor& weight,
                         const ConvolutionSteps& steps, int64_t groups) {
  return has_gradient_kernel(type_of_product(x)) && !has_upcast_convolution(x, weight) &&
         has_convolution_product(x, weight, steps, groups) &&
         patches_of(x, weight, steps).are_pixels();
}

bool has_upcast_convolution(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType type = type_of_product(x);
  return type == type_of_product(weight) && upcasts_matmul(x, type) && x.dim() == 4 &&
         x.numel() > 0;
}

at::Tensor fused_convolution(const at::Tensor& x, const at::Tensor& weight,
                             const ConvolutionSteps& steps, int64_t groups, ConvolutionForm form) {
  return FusedConvolution::apply(lowered(x), lowered_weight(weight, x), steps, groups, form);
}

bool fits_branch(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps) {
  return type_of_product(x) == x.scalar_type() && !has_upcast_convolution(x, weight) &&
         has_convolution_product(x, weight, steps, /*groups=*/1) &&
         patches_of(x, weight, steps).are_pixels() && !has_gradient_kernel(x.scalar_type());
}

Branch fused_branch(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps) {
  const variable_list results = FusedBranch::apply(x, lowered(weight), steps);
  return {results[0], results[1]};
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const ConvolutionSteps& steps,
                       int64_t groups, ConvolutionForm form) {
  if (is_upcast(x, weight)) {
    return convolution(x.to(at::kFloat), weight, steps, groups, form).to(x.scalar_type());
  }
  if (form == ConvolutionForm::kProduct) return product(x, weight, steps);
  return at::convolution(x, weight, {}, steps.stride, steps.padding, steps.dilation,
                         /*transposed=*/false, {0, 0}, groups);
}

ConvolutionGradients convolution_gradients(const at::Tensor& gradient, const at::Tensor& x,
                                           const at::Tensor& weight, const ConvolutionSteps& steps,
                                           int64_t groups, ConvolutionForm form, bool of_x,
                                           bool of_weight) {
  if (is_upcast(x, weight)) {
    ConvolutionGradients wide = convolution_gradients(gradient.to(at::kFloat), x.to(at::kFloat),
                                                      weight, steps, groups, form, of_x, of_weight);
    if (of_x) wide.x = wide.x.to(x.scalar_type());
    return wide;
  }
  if (form == ConvolutionForm::kProduct) {
    return product_gradients(gradient, x, weight, steps, of_x, of_weight);
  }
  const bool is_direct = form == ConvolutionForm::kDirect;
  auto [x_gradient, weight_gradient, none] = at::convolution_backward(
      gradient, x, weight, std::nullopt, steps.stride, steps.padding, steps.dilation,
      /*transposed=*/false, {0, 0}, groups, {of_x, of_weight && is_direct, false});
  if (of_weight && !is_direct) {
    weight_gradient = weight_gradient_of(
        pixels_of(gradient.contiguous(at::MemoryFormat::ChannelsLast)), pixels_of(x), weight);
  }
  return {x_gradient, weight_gradient};
}

std::vector<int64_t> to_list(const ConvolutionSteps& steps) {
  const auto& [stride, padding, dilation] = steps;
  return {stride[0], stride[1], padding[0], padding[1], dilation[0], dilation[1]};
}

ConvolutionSteps steps_of(const std::vector<int64_t>& list) {
  return {.stride = {list.at(0), list.at(1)},
          .padding = {list.at(2), list.at(3)},
          .dilation = {list.at(4), list.at(5)}};
}

}  // namespace brim::nn

// Each of Brim's fused operations, forward and backward, against LibTorch's operators for the same
// work, in turn in one process:
//
//   fused_ops [ROUNDS [NAME [cpu|cuda]]]
//
// A table with a line for each size and format: medians of ROUNDS (default 15) and their ratio,
// above 1 where the fused form is faster. NAME: only operations whose name begins so; "" for all.
// cuda: on the first GPU, where convolutions have one form and are left out. Where memory
// bounds an operation, how many bytes a second its fused form reads and writes, and how many that
// is of those of a copy of 256 MiB (on a GPU of 1 GiB); more than all where the tensors stay in the
// caches.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/memory.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/convolution.h"
#include "framework/nn/fused/attention.h"
#include "framework/nn/fused/cross_entropy.h"
#include "framework/nn/fused/gelu.h"
#include "framework/nn/fused/layer_norm.h"
#include "framework/nn/fused/linear_cross_entropy.h"
#include "framework/nn/max_pool.h"
#include "framework/nn/model.h"

namespace brim {
namespace {

double seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int rounds = 15;
std::string wanted;
at::Device place = at::kCPU;

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::device(place)); }

/// On a GPU, work is enqueued: its time ends where the device has done it.
void wait_for_device() {
  if (place.is_cuda()) c10::impl::VirtualGuardImpl(place.type()).synchronizeDevice(place.index());
}

/// What is measured: `run` does it once forward and backward, `inputs` lose their gradients after.
struct Work {
  std::string operation, format;
  std::vector<int64_t> sizes;
  std::vector<at::Tensor> inputs;
  std::function<void(bool fused)> run;
  double bytes = 0;  // that the fused form reads and writes; 0: something else bounds it
};

/// Read and written by a copy, a second.
double copied_bytes_per_s() {
  const int64_t bytes = int64_t{place.is_cuda() ? 1024 : 256} << 20;
  const at::Tensor from = at::zeros({bytes}, at::device(place).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  std::vector<double> taken;
  for (int i = 0; i < rounds + 2; ++i) {
    const double start = seconds();
    to.copy_(from);
    wait_for_device();
    taken.push_back(seconds() - start);
  }
  return 2 * static_cast<double>(from.numel()) / median(taken);
}

double bytes_of(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

double timed(const Work& work, bool fused) {
  const double start = seconds();
  work.run(fused);
  wait_for_device();
  const double taken = seconds() - start;
  for (const at::Tensor& input : work.inputs) input.mutable_grad() = at::Tensor();
  return taken;
}

void measure(const Work& work) {
  std::vector<double> plain, fused;
  for (int i = -2; i < rounds; ++i) {  // two to warm up
    const double one = timed(work, false), other = timed(work, true);
    if (i < 0) continue;
    plain.push_back(one);
    fused.push_back(other);
  }
  static const double copied = copied_bytes_per_s();
  const double moved = work.bytes / median(fused);
  fmt::print(
      "| {} | [{}] | {} | {:.2f} | {:.2f} | {:.2f}× | {} |\n", work.operation,
      fmt::join(work.sizes, ", "), work.format, 1e3 * median(plain), 1e3 * median(fused),
      median(plain) / median(fused),
      moved > 0 ? fmt::format("{:.1f} | {:.0f} %", 1e-9 * moved, 100 * moved / copied) : "– | –");
  std::fflush(stdout);
}

nn::Fused when(bool fused) { return fused ? nn::Fused::kAlways : nn::Fused::kNever; }

bool is_wanted(const std::string& operation) { return operation.starts_with(wanted); }

std::string name_of(at::ScalarType type) { return type == at::kFloat ? "fp32" : "bf16"; }

void batch_norm(at::IntArrayRef sizes, at::ScalarType type, bool has_residual) {
  const std::string operation = has_residual ? "batch norm, add, ReLU" : "batch norm, ReLU";
  if (!is_wanted(operation)) return;
  const auto images = [&] {
    return random(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast);
  };
  nn::BatchNorm2d norm(sizes[1]);
  norm->to(place);
  const at::Tensor x = images().requires_grad_(), gradient = images();
  const at::Tensor residual = has_residual ? images().requires_grad_() : at::Tensor();
  std::vector<at::Tensor> inputs = {x, norm->weight, norm->bias};
  if (has_residual) inputs.push_back(residual);
  measure({operation, name_of(type), sizes.vec(), inputs,
           [&](bool fused) {
             nn::use_fused(*norm, when(fused));
             const at::Tensor y =
                 has_residual ? norm->forward_add_relu(x, residual) : norm->forward_relu(x);
             y.backward(gradient);
           },
           // Forward reads x twice, backward x and the gradient; with a residual there are it, the
           // result and the gradient that the ReLU lets through.
           (has_residual ? 11 : 8) * bytes_of(x)});
}

void max_pool(at::IntArrayRef sizes, at::ScalarType type) {
  if (!is_wanted("max pool")) return;
  const nn::PoolWindow window = {.kernel = 3, .stride = 2, .padding = 1};
  const at::Tensor x = random(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast);
  if (!nn::has_fused_max_pool(x, window)) return;
  nn::MaxPool2d pool(window);
  const at::Tensor gradient = at::randn_like(pool->forward(x));
  x.requires_grad_();
  measure({"max pool",
           name_of(type),
           sizes.vec(),
           {x},
           [&](bool fused) {
             nn::use_fused(*pool, when(fused));
             pool->forward(x).backward(gradient);
           },
           2 * bytes_of(x) + 2 * bytes_of(gradient)});
}

void cross_entropy(int64_t rows, int64_t classes, at::ScalarType type, double smoothing) {
  const std::string operation = smoothing > 0 ? "cross-entropy, smoothed" : "cross-entropy";
  if (!is_wanted(operation)) return;
  nn::ClassTargets targets;
  targets.labels = at::randint(classes, {rows}, at::device(place).dtype(at::kLong));
  targets.smoothing = smoothing;
  const at::Tensor logits = random({rows, classes}).to(type).requires_grad_();
  measure({operation,
           name_of(type),
           {rows, classes},
           {logits},
           [&](bool fused) {
             at::Tensor loss;
             if (fused) {
               loss = nn::fused_cross_entropy(logits, targets);
             } else {  // as under autocast
               loss = at::cross_entropy_loss(logits.to(at::kFloat), targets.labels, {},
                                             at::Reduction::Mean, targets.ignore_index, smoothing);
             }
             loss.backward();
           },
           3 * bytes_of(logits)});
}

/// The matrix product before it is no part: it is the same for both but for its bias, which takes
/// LibTorch a pass that is counted here.
void bias_gelu(int64_t rows, int64_t channels, at::ScalarType type, nn::Gelu form) {
  const std::string operation = form == nn::Gelu::kTanh ? "bias, GELU (tanh)" : "bias, GELU (erf)";
  if (!is_wanted(operation)) return;
  const at::Tensor x = random({rows, channels}).to(type).requires_grad_();
  const at::Tensor bias = random({channels}).requires_grad_();
  const at::Tensor gradient = random({rows, channels}).to(type);
  measure({operation,
           name_of(type),
           {rows, channels},
           {x, bias},
           [&](bool fused) {
             const at::Tensor y =
                 fused ? nn::fused_bias_gelu(x, bias, form)
                       : at::gelu(x + bias.to(type), form == nn::Gelu::kTanh ? "tanh" : "none");
             y.backward(gradient);
           },
           5 * bytes_of(x)});
}

/// A product with a bias, then GELU.
void linear_gelu(int64_t rows, int64_t inputs, int64_t outputs, bool bf16) {
  const std::string operation = "linear, GELU (erf)";
  if (!is_wanted(operation)) return;
  nn::Linear layer(inputs, outputs);
  layer->to(place);
  const at::Tensor x =
      random({rows, inputs}).to(bf16 ? at::kBFloat16 : at::kFloat).requires_grad_();
  const at::Tensor gradient = random({rows, outputs}).to(bf16 ? at::kBFloat16 : at::kFloat);
  measure({operation,
           bf16 ? "bf16 autocast" : "fp32",
           {rows, inputs, outputs},
           {x, layer->weight, layer->bias},
           [&](bool fused) {
             nn::use_fused(*layer, when(fused));
             at::Tensor y;
             {
               const amp::Autocast autocast(
                   place.type(), {.compute = bf16 ? at::kBFloat16 : at::kFloat, .autocast = bf16});
               y = nn::linear_gelu(layer, x, when(fused));
             }
             y.backward(gradient);
           }});
}

/// Between the products of a block of a transformer.
void self_attention(int64_t texts, int64_t length, int64_t heads, int64_t size, bool is_causal,
                    bool bf16) {
  const std::string operation = is_causal ? "causal self-attention" : "self-attention";
  if (!is_wanted(operation) || place.is_cuda()) return;
  const at::ScalarType type = bf16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor qkv = random({texts, length, 3 * heads * size}).to(type).requires_grad_();
  const at::Tensor gradient = random({texts, length, heads * size}).to(type);
  measure(
      {operation, bf16 ? "bf16" : "fp32", {texts, length, heads, size}, {qkv}, [&](bool fused) {
         const nn::SelfAttention attention = {heads, is_causal};
         nn::self_attention(qkv, attention, when(fused), /*is_training=*/true).backward(gradient);
       }});
}

/// A language model's output layer and the loss of its logits, under autocast.
void linear_cross_entropy(int64_t tokens, int64_t width, int64_t classes) {
  const std::string operation = "linear cross-entropy";
  if (!is_wanted(operation) || place.is_cuda()) return;
  const at::Tensor x = random({tokens, width}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = (random({classes, width}) * 0.02).requires_grad_();
  const at::Tensor labels = at::randint(classes, {tokens}, at::kLong);
  measure({operation, "bf16 autocast", {tokens, width, classes}, {x, weight}, [&](bool fused) {
             at::Tensor loss;
             {
               const amp::Autocast autocast(c10::kCPU,
                                            {.compute = at::kBFloat16, .autocast = true});
               loss = fused ? nn::fused_linear_cross_entropy(x, weight, labels, -100)
                            : nn::mean_cross_entropy(at::linear(x, weight), labels, -100,
                                                     /*smoothing=*/0, /*is_fused=*/true);
             }
             loss.backward();
           }});
}

constexpr int64_t kWeights = 1 << 25;  // 128 MiB

/// As in a training step, a weight is met again only after others that the caches can't hold
/// beside.
void linear(int64_t rows, int64_t inputs, int64_t outputs, bool bf16) {
  const std::string operation = "linear by blocks";
  if (!is_wanted(operation) || place.is_cuda()) return;
  const int64_t layers = kWeights / (outputs * inputs) + 1;
  const at::ScalarType format = bf16 ? at::kBFloat16 : at::kFloat;
  std::vector<nn::Linear> all;
  const at::Tensor x = random({rows, inputs}).to(format).requires_grad_();
  const at::Tensor gradient = random({rows, outputs}).to(format);
  std::vector<at::Tensor> leaves = {x};
  for (int64_t i = 0; i < layers; ++i) {
    all.emplace_back(inputs, outputs);
    leaves.push_back(all.back()->weight);
    leaves.push_back(all.back()->bias);
  }
  measure({fmt::format("{}, {} layers", operation, layers),
           bf16 ? "bf16 autocast" : "fp32",
           {rows, inputs, outputs},
           leaves,
           [&](bool fused) {
             for (nn::Linear& layer : all) {
               nn::use_fused(*layer, when(fused));
               at::Tensor y;
               {
                 const amp::Autocast autocast(c10::kCPU, {.compute = format, .autocast = bf16});
                 y = layer->forward(x);
               }
               y.backward(gradient);
             }
           }});
}

/// The same for convolutions.
void convolution(at::IntArrayRef sizes, int64_t outputs, int64_t kernel, int64_t stride,
                 bool bf16) {
  const std::string operation = "convolution";
  if (!is_wanted(operation) || place.is_cuda()) return;
  const int64_t layers = kWeights / (outputs * sizes[1] * kernel * kernel) + 1;
  std::vector<nn::Conv2d> convolutions;
  const at::Tensor x = random(sizes).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  std::vector<at::Tensor> inputs = {x};
  for (int64_t i = 0; i < layers; ++i) {
    convolutions.emplace_back(torch::nn::Conv2dOptions(sizes[1], outputs, kernel)
                                  .stride(stride)
                                  .padding(kernel / 2)
                                  .bias(false));
    nn::use_channels_last(*convolutions.back());
    inputs.push_back(convolutions.back()->weight);
  }
  const amp::Precision precision = {.compute = bf16 ? at::kBFloat16 : at::kFloat, .autocast = bf16};
  measure({fmt::format("{}×{} {}, {} layers", kernel, kernel, operation, layers),
           bf16 ? "bf16 autocast" : "fp32",
           {sizes[0], sizes[1], sizes[2], sizes[3], outputs},
           inputs,
           [&](bool fused) {
             for (nn::Conv2d& layer : convolutions) {
               nn::use_fused(*layer, when(fused));
               at::Tensor y;
               {
                 const amp::Autocast autocast(c10::kCPU, precision);
                 y = layer->forward(x);
               }
               y.sum().backward();
             }
           }});
}

/// Of each channel with a kernel of its own, and a bias.
void depthwise(at::IntArrayRef sizes, int64_t kernel, int64_t stride, at::ScalarType type) {
  const std::string operation = "depthwise convolution";
  if (!is_wanted(operation) || place.is_cuda()) return;
  nn::Conv2d layer(torch::nn::Conv2dOptions(sizes[1], sizes[1], kernel)
                       .stride(stride)
                       .padding(kernel / 2)
                       .groups(sizes[1]));
  const bool bf16 = type == at::kBFloat16;
  const at::Tensor x =
      random(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const amp::Precision precision = {.compute = type, .autocast = bf16};
  at::Tensor gradient;
  measure({fmt::format("{}×{} {}", kernel, kernel, operation),
           bf16 ? "bf16 autocast" : "fp32",
           {sizes[0], sizes[1], sizes[2], sizes[3], stride},
           {x, layer->weight, layer->bias},
           [&](bool fused) {
             nn::use_fused(*layer, when(fused));
             at::Tensor y;
             {
               const amp::Autocast autocast(c10::kCPU, precision);
               y = layer->forward(x);
             }
             if (!gradient.defined()) gradient = at::randn_like(y);
             y.backward(gradient);
           }});
}

/// As in a block of a transformer: x continues, and the norm goes into a product that reads `type`.
void layer_norm(int64_t rows, int64_t channels, at::ScalarType type, bool has_branch) {
  const std::string operation = has_branch ? "add, layer norm" : "layer norm";
  if (!is_wanted(operation)) return;
  const at::Tensor x = random({rows, channels}).requires_grad_();
  const at::Tensor branch =
      has_branch ? random({rows, channels}).to(type).requires_grad_() : at::Tensor();
  const nn::LayerNormState state = {random({channels}).requires_grad_(),
                                    random({channels}).requires_grad_(), 1e-5};
  const at::Tensor of_norm = random({rows, channels}).to(type);
  const at::Tensor of_sum = random({rows, channels});
  std::vector<at::Tensor> inputs = {x, state.weight, state.bias};
  if (has_branch) inputs.push_back(branch);
  measure({operation,
           type == at::kFloat ? "fp32" : "bf16 autocast",
           {rows, channels},
           inputs,
           [&](bool fused) {
             nn::AddedNorm y;
             if (fused) {
               y = nn::fused_layer_norm(x, branch, state, type);
             } else {
               y.sum = has_branch ? x + branch : x;
               y.norm = at::layer_norm(y.sum, {channels}, state.weight, state.bias, state.eps);
               y.norm = y.norm.to(type);
             }
             if (has_branch) {
               torch::autograd::backward({y.norm, y.sum}, {of_norm, of_sum});
             } else {
               y.norm.backward(of_norm);
             }
           },
           // x or the sum and its gradient; the norm and its gradient; what is added to them.
           has_branch ? 5 * bytes_of(x) + (type == at::kFloat ? 3 : 4) * bytes_of(of_norm)
                      : 3 * bytes_of(x) + 2 * bytes_of(of_norm)});
}

void measure_all() {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};
  using Sizes = std::vector<int64_t>;
  for (const Sizes& sizes : {Sizes{32, 64, 112, 112}, {32, 256, 56, 56}, {32, 2048, 7, 7}}) {
    for (const at::ScalarType type : kTypes) {
      for (const bool has_residual : {false, true}) batch_norm(sizes, type, has_residual);
    }
  }
  for (const at::ScalarType type : kTypes) max_pool({256, 64, 112, 112}, type);
  for (const bool bf16 : {false, true}) {
    convolution({8, 512, 1, 1}, 512, 3, 1, bf16);  // the last ones of ResNet-18 at 32 px, batch 8
    convolution({8, 256, 2, 2}, 512, 3, 2, bf16);
    convolution({8, 256, 2, 2}, 512, 1, 2, bf16);
    convolution({8, 256, 2, 2}, 256, 3, 1, bf16);
    convolution({32, 512, 2, 2}, 512, 3, 1, bf16);
    convolution({8, 512, 7, 7}, 2048, 1, 1, bf16);  // of ResNet-50 at 224 px
  }
  for (const at::ScalarType type : kTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      cross_entropy(64, 10, type, smoothing);
      cross_entropy(64, 1000, type, smoothing);
      cross_entropy(1024, 50257, type, smoothing);
    }
  }
  for (const at::ScalarType type : kTypes) {
    for (const nn::Gelu form : {nn::Gelu::kErf, nn::Gelu::kTanh}) {
      bias_gelu(256, 512, type, form);
      bias_gelu(4096, 3072, type, form);
    }
    linear_gelu(1576, 768, 3072, type == at::kBFloat16);
    self_attention(16, 197, 6, 64, false, type == at::kBFloat16);  // ViT-S
    self_attention(16, 197, 12, 64, false, type == at::kBFloat16);
    for (const int64_t length : {256, 512, 1024, 2048}) {
      self_attention(2048 / length, length, 4, 64, true, type == at::kBFloat16);
      self_attention(2048 / length, length, 12, 64, true, type == at::kBFloat16);
    }
    if (type == at::kBFloat16) {
      linear_cross_entropy(2048, 256, 50257);
      linear_cross_entropy(2048, 768, 50257);
      linear_cross_entropy(2048, 256, 256);
    }
    for (const int64_t rows : {8, 64, 256}) linear(rows, 1024, 1024, type == at::kBFloat16);
    linear(64, 768, 3072, type == at::kBFloat16);
    if (type == at::kBFloat16) {
      linear(3152, 384, 1536, true);  // of ViT-S at batch 16
      linear(3152, 1536, 384, true);
      linear(3152, 384, 1152, true);
    }
    depthwise({16, 96, 56, 56}, 7, 1, type);  // of ConvNeXt-T
    depthwise({16, 192, 28, 28}, 7, 1, type);
    depthwise({16, 384, 14, 14}, 7, 1, type);
    depthwise({16, 768, 7, 7}, 7, 1, type);
    depthwise({32, 96, 112, 112}, 3, 2, type);  // of MobileNet v2 and EfficientNet
    depthwise({32, 144, 56, 56}, 3, 1, type);
    depthwise({32, 240, 28, 28}, 5, 1, type);
    depthwise({32, 672, 14, 14}, 5, 2, type);
    for (const bool has_branch : {false, true}) {
      layer_norm(256, 128, type, has_branch);
      layer_norm(1576, 768, type, has_branch);
      layer_norm(8192, 768, type, has_branch);
    }
  }
}

}  // namespace
}  // namespace brim

int main(int argc, char** argv) {
  if (argc > 1) brim::rounds = std::max(1, std::atoi(argv[1]));
  if (argc > 2) brim::wanted = argv[2];
  const std::string device = argc > 3 ? argv[3] : "cpu";
  if (device != "cpu" && device != "cuda") {
    fmt::print(stderr, "fused_ops: expected cpu or cuda as the device; found {}\n", device);
    return 2;
  }
  if (device == "cuda") {
    if (const auto& cuda = brim::device::cuda(); cuda.backend == nullptr) {
      fmt::print(stderr, "fused_ops: no GPU can be used: {}\n", cuda.why_not);
      return 5;
    }
    brim::place = at::Device(at::kCUDA, 0);
  }
  const auto memory = brim::device::memory_of(brim::place, {});
  fmt::print(
      "| operation | size | format | LibTorch, ms | fused, ms | ratio | GB/s | of a copy's |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  brim::measure_all();
  return 0;
}

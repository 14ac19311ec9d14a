#include "framework/device/peak.h"

#include <array>

namespace brim::device {
namespace {

/// TFLOP/s without sparsity, at the boost clock; 0: not a format of its matrix units.
struct Peak {
  std::string_view name;  // a part of the GPU's name; the first that fits counts
  double bf16, fp16, tf32, fp32, fp64;
};

constexpr std::array kPeaks = {
    // NVIDIA HGX B200 data sheet (2025): a GPU's part; half of what it gives with sparsity.
    Peak{"B200", 2250, 2250, 1100, 75, 37},
    // NVIDIA H200 Tensor Core GPU data sheet (2024): SXM; half of what it gives with sparsity.
    Peak{"H200", 989.5, 989.5, 494.7, 67, 67},
    // NVIDIA H100 Tensor Core GPU data sheet (2023): PCIe, NVL, then SXM.
    Peak{"H100 PCIe", 756, 756, 378, 51, 51},
    Peak{"H100 NVL", 835.5, 835.5, 417.5, 60, 60},
    Peak{"H100", 989.5, 989.5, 494.7, 67, 67},
    // NVIDIA A100 Tensor Core GPU data sheet (2021).
    Peak{"A100", 312, 312, 156, 19.5, 19.5},
    // NVIDIA A10 and A30 data sheets (2021, 2022).
    Peak{"A10G", 70, 70, 35, 35, 0},
    Peak{"A10", 125, 125, 62.5, 31.2, 0},
    Peak{"A30", 165, 165, 82, 10.3, 10.3},
    // NVIDIA A40 and RTX A6000 data sheets (2021).
    Peak{"A40", 149.7, 149.7, 74.8, 37.4, 0},
    Peak{"RTX A6000", 154.8, 154.8, 77.4, 38.7, 0},
    // NVIDIA L40S, L40 and L4 data sheets (2023); half of what they give with sparsity.
    Peak{"L40S", 362, 362, 183, 91.6, 0},
    Peak{"L40", 181, 181, 90.5, 90.5, 0},
    Peak{"L4", 121, 121, 60, 30.3, 0},
    // NVIDIA Ada GPU architecture white paper (2022), appendix A, sums in float32.
    Peak{"RTX 4090", 165.2, 165.2, 82.6, 82.6, 0},
    Peak{"RTX 4080", 97.5, 97.5, 48.7, 48.7, 0},
    // NVIDIA Ampere GA102 GPU architecture white paper (2021), sums in float32.
    Peak{"RTX 3090", 71, 71, 35.6, 35.6, 0},
    // NVIDIA Tesla V100 data sheet (2020): PCIe, then SXM2.
    Peak{"V100-PCIE", 0, 112, 0, 14, 7},
    Peak{"V100", 0, 125, 0, 15.7, 7.8},
    // NVIDIA T4 data sheet (2019).
    Peak{"T4", 0, 65, 0, 8.1, 0},
};

double of_format(const Peak& peak, std::string_view format) {
  if (format == "bf16") return peak.bf16;
  if (format == "fp16") return peak.fp16;
  if (format == "tf32") return peak.tf32;
  if (format == "fp32") return peak.fp32;
  if (format == "fp64") return peak.fp64;
  return 0;
}

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// Whether `part` stands in `name` as whole words: "L4" is not in "L40".
bool has_words(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    const bool starts = at == 0 || !is_word_character(name[at - 1]);
    if (starts && (end == name.size() || !is_word_character(name[end]))) return true;
  }
  return false;
}

}  // namespace

double peak_flops(std::string_view gpu, std::string_view format) {
  for (const Peak& peak : kPeaks) {
    if (has_words(gpu, peak.name)) return 1e12 * of_format(peak, format);
  }
  return 0;
}

}  // namespace brim::device

// Products of float32 over patches of images (patches_cpu.h) that are read where they lie, by a
// kernel of ours: "implicit GEMM" (Chetlur et al., cuDNN, arXiv 1410.0759). A linear layer's rows
// are the pixels of one image.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused/dtypes.h"
#include "framework/nn/fused/patches_cpu.h"

namespace brim::nn::cpu {

// All need AVX2, see multiplies_float_tiles() (block_product_cpu.h), and tensors are float32; C and
// O are the channels of images and places. A weight [O, KH·KW·C] is without gaps, or its transpose
// is.

/// Images [N·H·W, C] without gaps, and a bias [O] or none, to places [N·OH·OW, O].
at::Tensor implicit_gemm(const at::Tensor& images, const at::Tensor& weight,
                         const MaybeTensor& bias, const Patches& patches);

/// result [N·H·W, C] = the images' gradient, of [N·OH·OW, O], all without gaps; plus what it was
/// where `adds`.
void implicit_gemm_of_images(const at::Tensor& gradient, const at::Tensor& weight,
                             const Patches& patches, const at::Tensor& result, bool adds);

/// Of the weight: [O, KH·KW·C] without gaps.
at::Tensor implicit_gemm_of_weight(const at::Tensor& gradient, const at::Tensor& images,
                                   const Patches& patches);

}  // namespace brim::nn::cpu

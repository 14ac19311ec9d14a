// A product's right factor is laid out in panels of a few columns. The left factor of a convolution
// and of its input's gradient is read where it lies: at each of the kernel's taps a row of patches
// is a pixel's channels. For the weight's gradient both factors are laid out, a chunk of places at
// a time. Loops as Goto and van de Geijn's (TOMS 2008); each sum is added up in the same order by
// any number of threads.
#include "framework/nn/fused/implicit_gemm_cpu.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <vector>

#include "framework/nn/fused/block_product_cpu.h"

namespace brim::nn::cpu {
namespace {

using loops::kTileColumns;
using loops::kTileRows;

constexpr int64_t kBlockGroups = 16;   // of kTileRows: rows that a thread multiplies by all panels
constexpr int64_t kChunkPlaces = 384;  // of a weight's gradient: a product's depth
constexpr int64_t kGradientOutputs = 252;     // at a time: their chunk fits a core's own cache
constexpr int64_t kGradientPanels = 64;       // at a time, kept laid out for all outputs
constexpr int64_t kStripRows = 8;             // laid out at a time, which the first cache keeps
constexpr int64_t kGradientParts = 16;        // of the places, each with sums of its own
constexpr int64_t kGradientValues = 1 << 20;  // of all parts' sums

// --- where patches lie ---------------------------------------------------------------------------

/// One side of a grid of rows: each is multiplied by pixels of a source, and its sums become a
/// pixel of the result.
struct Side {
  int64_t count;                // of rows
  int64_t source, source_step;  // pixels, and from one row's to the next
  int64_t result, first, step;  // pixels, the first row's, and from one row's to the next
};

struct Tap {
  int64_t index;                       // in the weight
  std::array<int64_t, 2> offset = {};  // of the source's pixel from the row's
};

struct Grid {
  int64_t images;
  std::array<Side, 2> sides = {};
  std::vector<Tap> taps = {};

  int64_t rows() const { return images * sides[0].count * sides[1].count; }
};

/// The places of patches.
Grid places_of(const Patches& p) {
  Grid grid{.images = p.image[0]};
  for (const int side : {0, 1}) {
    const int64_t places = p.places(side);
    grid.sides[side] = {.count = places,
                        .source = p.image[2 + side],
                        .source_step = p.steps.stride[side],
                        .result = places,
                        .first = 0,
                        .step = 1};
  }
  for (int64_t tap = 0; tap < p.kernel[0] * p.kernel[1]; ++tap) {
    const std::array<int64_t, 2> at = {tap / p.kernel[1], tap % p.kernel[1]};
    Tap& added = grid.taps.emplace_back(Tap{.index = tap});
    for (const int side : {0, 1}) {
      added.offset[side] = at[side] * p.steps.dilation[side] - p.steps.padding[side];
    }
  }
  return grid;
}

/// The pixels of images that are first + a multiple of the stride: the same taps lie on all.
Grid pixels_of(const Patches& p, std::array<int64_t, 2> first) {
  Grid grid{.images = p.image[0]};
  for (const int side : {0, 1}) {
    const int64_t pixels = p.image[2 + side], stride = p.steps.stride[side];
    grid.sides[side] = {.count = blocks(pixels - first[side], stride),
                        .source = p.places(side),
                        .source_step = 1,
                        .result = pixels,
                        .first = first[side],
                        .step = stride};
  }
  for (int64_t tap = 0; tap < p.kernel[0] * p.kernel[1]; ++tap) {
    const std::array<int64_t, 2> at = {tap / p.kernel[1], tap % p.kernel[1]};
    Tap added = {.index = tap};
    bool lies = true;
    for (const int side : {0, 1}) {
      const int64_t distance =
          first[side] + p.steps.padding[side] - at[side] * p.steps.dilation[side];
      lies = lies && distance % p.steps.stride[side] == 0;
      added.offset[side] = distance / p.steps.stride[side];
    }
    if (lies) grid.taps.push_back(added);
  }
  return grid;
}

/// f(row, image, y, x) of the grid's rows from `begin` to `end`.
template <class F>
void for_each_row(const Grid& grid, int64_t begin, int64_t end, const F& f) {
  const int64_t height = grid.sides[0].count, width = grid.sides[1].count;
  int64_t image = begin / (height * width), y = begin / width % height, x = begin % width;
  for (int64_t row = begin; row < end; ++row) {
    f(row, image, y, x);
    if (++x < width) continue;
    x = 0;
    if (++y < height) continue;
    y = 0;
    ++image;
  }
}

/// The source's pixel, or -1 outside of it.
int64_t source_of(const Grid& grid, const Tap& tap, int64_t image, int64_t y, int64_t x) {
  const auto& [high, wide] = grid.sides;
  const int64_t source_y = y * high.source_step + tap.offset[0];
  const int64_t source_x = x * wide.source_step + tap.offset[1];
  if (source_y < 0 || source_y >= high.source || source_x < 0 || source_x >= wide.source) return -1;
  return (image * high.source + source_y) * wide.source + source_x;
}

int64_t result_of(const Grid& grid, int64_t image, int64_t y, int64_t x) {
  const auto& [high, wide] = grid.sides;
  return (image * high.result + high.first + y * high.step) * wide.result + wide.first +
         x * wide.step;
}

// --- right factors -------------------------------------------------------------------------------

/// A matrix that has its values side by side along its rows or along its columns.
struct Strided {
  const float* values;
  int64_t row_stride, column_stride;

  const float* at(int64_t row, int64_t column) const {
    return values + row * row_stride + column * column_stride;
  }
};

/// Its first rows' and columns', with zeros behind the latter: [depth, kTileColumns].
void lay_out_panel(int64_t depth, int64_t columns, const Strided& from, float* to) {
  if (from.column_stride == 1) {
    lay_out_tile(depth, columns, {from.values, from.row_stride}, to);
  } else {
    lay_out_transposed_tile(depth, columns, {from.values, from.column_stride}, to);
  }
}

/// A factor [depth, columns] for each of `taps`, in panels [depth, kTileColumns].
struct Panels {
  int64_t taps, depth, columns;
  at::Tensor values;  // [panels, taps, depth, kTileColumns]

  const float* of(int64_t panel, int64_t tap) const {
    return data<float>(values) + (panel * taps + tap) * depth * kTileColumns;
  }
};

/// of_tap(tap): that tap's factor.
template <class F>
Panels panels_of(int64_t taps, int64_t depth, int64_t columns, const at::Tensor& like,
                 const F& of_tap) {
  const int64_t count = blocks(columns, kTileColumns), size = depth * kTileColumns;
  Panels panels{taps, depth, columns, at::empty({count * taps * size}, like.options())};
  auto* const to = writable<float>(panels.values);
  at::parallel_for(0, count * taps, grain_of(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i / taps * kTileColumns;
      Strided factor = of_tap(i % taps);
      factor.values = factor.at(0, c);
      lay_out_panel(depth, std::min<int64_t>(kTileColumns, columns - c), factor, to + i * size);
    }
  });
  return panels;
}

// --- products ------------------------------------------------------------------------------------

/// Some of the taps and of their depth.
struct DepthPart {
  int64_t first_tap, taps, first, depth;
};

/// All of them, in parts of about kTileDepth. At least one, which may have no taps.
std::vector<DepthPart> parts_of(int64_t taps, int64_t depth) {
  std::vector<DepthPart> parts;
  const int64_t together = std::max<int64_t>(1, kTileDepth / depth),
                cuts = blocks(depth, kTileDepth);
  for (int64_t tap = 0; tap < taps; tap += together) {
    for (int64_t cut = 0; cut < cuts; ++cut) {
      const int64_t first = depth * cut / cuts;
      parts.push_back(
          {tap, std::min(together, taps - tap), first, depth * (cut + 1) / cuts - first});
    }
  }
  if (parts.empty()) parts.push_back({});
  return parts;
}

/// result [its pixels, panels.columns] of the grid's rows = Σ over its taps of source [its pixels,
/// panels.depth] · that tap's factor.
void multiply_rows(const Grid& grid, const float* source, const Panels& panels, const float* bias,
                   float* result, bool adds) {
  const auto taps = static_cast<int64_t>(grid.taps.size());
  const int64_t depth = panels.depth, columns = panels.columns, rows = grid.rows();
  const std::vector<DepthPart> parts = parts_of(taps, depth);
  const std::vector<float> zeros(depth);  // for pixels that are outside
  const int64_t panel_count = blocks(columns, kTileColumns);
  const Scratch<float> unused(panel_count * kTileColumns);
  in_tasks(blocks(rows, kTileRows), [&](int64_t begin, int64_t end, int64_t task) {
    std::vector<const float*> left(kBlockGroups * taps * kTileRows);
    std::vector<float*> sums(kBlockGroups * kTileRows, unused.of(task));
    std::vector<const float*> right(taps);
    for (int64_t group = begin; group < end; group += kBlockGroups) {
      const int64_t groups = std::min(kBlockGroups, end - group);
      const int64_t first = group * kTileRows;
      const int64_t count = std::min(groups * kTileRows, rows - first);
      std::ranges::fill(left, zeros.data());
      std::ranges::fill(sums, unused.of(task));
      for_each_row(
          grid, first, first + count, [&](int64_t row, int64_t image, int64_t y, int64_t x) {
            const int64_t in_group = (row - first) % kTileRows;
            const int64_t of_block = (row - first) / kTileRows;
            for (int64_t tap = 0; tap < taps; ++tap) {
              const int64_t pixel = source_of(grid, grid.taps[tap], image, y, x);
              if (pixel < 0) continue;
              left[(of_block * taps + tap) * kTileRows + in_group] = source + pixel * depth;
            }
            sums[row - first] = result + result_of(grid, image, y, x) * columns;
          });
      for (const DepthPart& part : parts) {
        const bool is_first = part.first_tap == 0 && part.first == 0;
        for (int64_t panel = 0; panel < panel_count; ++panel) {
          const int64_t c = panel * kTileColumns;
          for (int64_t i = 0; i < part.taps; ++i) {
            right[i] =
                panels.of(panel, grid.taps[part.first_tap + i].index) + part.first * kTileColumns;
          }
          loops::FloatProduct product = {.segments = part.taps,
                                         .depth = part.depth,
                                         .left = nullptr,
                                         .left_first = part.first,
                                         .left_step = 1,
                                         .right = right.data(),
                                         .sums = nullptr,
                                         .sums_first = c,
                                         .columns = std::min<int64_t>(kTileColumns, columns - c),
                                         .bias = bias == nullptr || !is_first ? nullptr : bias + c,
                                         .adds = adds || !is_first};
          for (int64_t g = 0; g < groups; ++g) {
            product.left = left.data() + (g * taps + part.first_tap) * kTileRows;
            product.sums = sums.data() + g * kTileRows;
            multiply_tile(product);
          }
        }
      }
    }
  });
}

/// A tap's values in a weight [O, KH·KW·C].
Strided tap_of(const at::Tensor& weight, int64_t channels, int64_t tap) {
  return {data<float>(weight) + tap * channels * weight.stride(1), weight.stride(0),
          weight.stride(1)};
}

// --- the weight's gradient -----------------------------------------------------------------------

/// A matrix [rows, columns] whose rows lie `stride` apart, kTileRows columns side by side, with
/// zeros behind the last: [panels, rows, kTileRows].
void lay_out_left(int64_t rows, int64_t columns, Block<const float> from, float* to) {
  for (int64_t k = 0; k < rows; k += kStripRows) {
    const int64_t height = std::min(kStripRows, rows - k);
    for (int64_t c = 0; c < columns; c += kTileRows) {
      const float* row = from.values + k * from.stride + c;
      float* tile = to + c * rows + k * kTileRows;
      const int64_t width = std::min<int64_t>(kTileRows, columns - c);
      for (int64_t i = 0; i < height; ++i, row += from.stride, tile += kTileRows) {
        copy_padded<kTileRows>(row, width, tile);
      }
    }
  }
}

/// Some channels of a source's pixels [pixels, channels] at a tap of the grid's rows first … first
/// + count, with zeros behind: [count, kTileColumns].
void lay_out_pixels(const Grid& grid, const Tap& tap, const float* source, int64_t channels,
                    int64_t width, int64_t first, int64_t count, float* to) {
  const auto& [high, wide] = grid.sides;
  int64_t line = first / wide.count, x = first % wide.count;  // of the grid
  for (int64_t left = count; left > 0; ++line, x = 0) {
    const int64_t run = std::min(left, wide.count - x);
    const int64_t y = line % high.count * high.source_step + tap.offset[0];
    const int64_t line_of_source = (line / high.count * high.source + y) * wide.source;
    const bool is_outside = y < 0 || y >= high.source;
    int64_t at = x * wide.source_step + tap.offset[1];
    for (int64_t i = 0; i < run; ++i, at += wide.source_step, to += kTileColumns) {
      if (is_outside || at < 0 || at >= wide.source) {
        std::fill_n(to, kTileColumns, 0.F);
      } else {
        copy_padded<kTileColumns>(source + (line_of_source + at) * channels, width, to);
      }
    }
    left -= run;
  }
}

}  // namespace

at::Tensor implicit_gemm(const at::Tensor& images, const at::Tensor& weight,
                         const MaybeTensor& bias, const Patches& patches) {
  const Grid grid = places_of(patches);
  const int64_t channels = patches.image[1], outputs = weight.size(0);
  const auto taps = static_cast<int64_t>(grid.taps.size());
  const Panels panels = panels_of(taps, channels, outputs, images, [&](int64_t tap) {
    const Strided of = tap_of(weight, channels, tap);
    return Strided{of.values, of.column_stride, of.row_stride};
  });
  at::Tensor result = at::empty({grid.rows(), outputs}, images.options());
  multiply_rows(grid, data<float>(images), panels, data<float>(bias), writable<float>(result),
                /*adds=*/false);
  return result;
}

void implicit_gemm_of_images(const at::Tensor& gradient, const at::Tensor& weight,
                             const Patches& patches, const at::Tensor& result, bool adds) {
  const int64_t channels = patches.image[1];
  const Panels panels =
      panels_of(patches.kernel[0] * patches.kernel[1], weight.size(0), channels, gradient,
                [&](int64_t tap) { return tap_of(weight, channels, tap); });
  for (int64_t y = 0; y < std::min(patches.image[2], patches.steps.stride[0]); ++y) {
    for (int64_t x = 0; x < std::min(patches.image[3], patches.steps.stride[1]); ++x) {
      multiply_rows(pixels_of(patches, {y, x}), data<float>(gradient), panels, /*bias=*/nullptr,
                    writable<float>(result), adds);
    }
  }
}

at::Tensor implicit_gemm_of_weight(const at::Tensor& gradient, const at::Tensor& images,
                                   const Patches& patches) {
  const Grid grid = places_of(patches);
  const int64_t channels = patches.image[1], outputs = gradient.size(1), rows = grid.rows();
  const auto taps = static_cast<int64_t>(grid.taps.size());
  const int64_t inputs = taps * channels, values = outputs * inputs;
  const int64_t of_tap = blocks(channels, kTileColumns), panels = taps * of_tap;
  const int64_t parts = std::clamp<int64_t>(
      std::min(kGradientValues / values, blocks(rows, 4 * kChunkPlaces)), 1, kGradientParts);
  // Threads that share a part's places take some of the larger factor's columns each, and all lay
  // out the smaller factor.
  const int64_t groups = outputs < inputs ? 1
                                          : std::clamp<int64_t>(at::get_num_threads() / parts, 1,
                                                                blocks(outputs, kGradientOutputs));
  const auto first_of_group = [&](int64_t group) {
    return std::min(blocks(outputs, kTileRows) * group / groups * kTileRows, outputs);
  };
  const at::Tensor sums = at::empty({parts, outputs, inputs}, gradient.options());
  const int64_t deepest = std::min(kChunkPlaces, blocks(rows, parts));
  const Scratch<float> lefts(rounded_up(std::min(outputs, kGradientOutputs), kTileRows) * deepest);
  // Panels that several blocks of outputs are multiplied by stay laid out.
  const bool keeps = blocks(outputs, groups * kGradientOutputs) > 1;
  const int64_t together = keeps ? std::min(panels, kGradientPanels) : panels;
  const Scratch<float> rights(deepest * kTileColumns * (keeps ? together : 1));
  // Panels of all groups of all parts, each thread some that follow each other.
  in_tasks(parts * groups * panels, [&](int64_t begin, int64_t end, int64_t task) {
    float *const left = lefts.of(task), *const right = rights.of(task);
    const auto multiply_panels = [&](int64_t unit, int64_t first, int64_t last) {
      const int64_t part = unit / groups, group = unit % groups;
      const int64_t first_row = rows * part / parts, end_row = rows * (part + 1) / parts;
      const int64_t first_output = first_of_group(group), end_output = first_of_group(group + 1);
      for (int64_t row = first_row; row < end_row; row += kChunkPlaces) {
        const int64_t count = std::min(kChunkPlaces, end_row - row);
        for (int64_t o = first_output; o < end_output; o += kGradientOutputs) {
          const int64_t height = std::min(kGradientOutputs, end_output - o);
          float* const to = writable<float>(sums) + part * values + o * inputs;
          lay_out_left(count, height, {data<float>(gradient) + row * outputs + o, outputs}, left);
          const auto row_at = [&](int64_t r) {
            return left + r / kTileRows * kTileRows * count + r % kTileRows;
          };
          for (int64_t panel = first; panel < last; ++panel) {
            const Tap& tap = grid.taps[panel / of_tap];
            const int64_t c = panel % of_tap * kTileColumns;
            const int64_t width = std::min<int64_t>(kTileColumns, channels - c);
            float* const laid_out = right + (keeps ? (panel - first) * count * kTileColumns : 0);
            if (!keeps || o == first_output) {
              lay_out_pixels(grid, tap, data<float>(images) + c, channels, width, row, count,
                             laid_out);
            }
            multiply_tiles(height, width, count, row_at, /*left_step=*/kTileRows, laid_out,
                           {to + tap.index * channels + c, inputs}, /*adds=*/row > first_row);
          }
        }
      }
    };
    for (int64_t panel = begin; panel < end;) {
      const int64_t unit = panel / panels, first = panel % panels;
      const int64_t count = std::min({end - panel, panels - first, together});
      multiply_panels(unit, first, first + count);
      panel += count;
    }
  });
  return parts == 1 ? sums[0] : sums.sum(0);
}

}  // namespace brim::nn::cpu

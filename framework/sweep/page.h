// A sweep as one HTML file: parallel coordinates, the metric of all trials over their steps, the
// best recipe to copy, the table. It needs no network and no other file.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "framework/experiment/report/page.h"
#include "framework/experiment/series.h"
#include "framework/sweep/store.h"

namespace brim::sweep {

/// A metric of the run in a folder; nullopt where it can't be read or has none.
using FindSeries = std::function<std::optional<experiment::Series>(const std::filesystem::path& run,
                                                                   const std::string& metric)>;

/// `made_at` is shown at its end; "" for a page that is served live.
experiment::Page sweep_page(const Store& store, std::span<const Trial> trials,
                            const std::string& made_at, const FindSeries& find);

/// The same as one file, with curves from the runs' folders.
std::string make_page(const Store& store, std::span<const Trial> trials,
                      const std::string& made_at);

}  // namespace brim::sweep

// What trainer watch shows: a run's report, the table of a folder's runs, a sweep's page.
#pragma once

#include <string>
#include <string_view>

#include "framework/experiment/report/page.h"
#include "framework/watch/watched_folder.h"

namespace brim::watch {

/// The page that `trainer report` freezes, with the end of the run's log. Throws Error(kData) where
/// the run can't be read.
experiment::Page run_page(const WatchedRun& run);

/// The runs of a folder, newest first, with links to them and to its sweeps.
experiment::Page folder_page(const WatchedFolder& folder);

/// The page that `trainer sweep` leaves in the sweep's folder. Throws Error: kData where it can't
/// be read or leads out of the folder, kResource.
experiment::Page sweep_page(WatchedFolder& folder, const std::string& name);

/// "/run/a%20b/c": the place of a run or a sweep ("/sweep/…") by its name.
std::string place_of(std::string_view kind, std::string_view name);

}  // namespace brim::watch

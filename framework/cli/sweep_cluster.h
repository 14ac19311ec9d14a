// A sweep on many machines: each job of a cluster is a process that works on the sweep in its
// folder, trainer sweep --resume FOLDER, until no trial is left to begin. The folder is on a disk
// that all machines share.
#pragma once

#include <string>

#include "framework/sweep/store.h"

namespace brim::cli {

/// Writes slurm.sbatch in the sweep's folder and submits it as a job array, with these further
/// options of sbatch, parted by blanks. Throws Error(kResource) where sbatch can't be started or
/// refuses.
void submit_to_slurm(sweep::Store& store, const std::string& options, bool trusts_library);

/// Writes kubernetes.yaml in the sweep's folder: an Indexed Job.
void write_kubernetes_job(sweep::Store& store, bool trusts_library);

}  // namespace brim::cli

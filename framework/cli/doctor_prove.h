// trainer doctor RUN --prove: the speed that a run would have if its data cost nothing.
#pragma once

#include "framework/doctor/proof.h"
#include "framework/experiment/run_data.h"

namespace brim::cli {

/// Takes some steps of the run's recipe on preloaded samples, in this process, on the kind of
/// device that the run had. Writes nothing into the run's folder. Throws Error: kData where the
/// folder holds no recipe, and what training throws. `trusts_library`: --trust-library.
doctor::Proof prove_run(const experiment::RunData& run, bool trusts_library);

}  // namespace brim::cli

// trainer doctor RUN --prove: the speed that a run would have if its data cost nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "framework/doctor/proof.h"
#include "framework/experiment/run_data.h"

namespace brim::cli {

/// Takes some steps of the run's recipe on preloaded samples, in this process, on the kind of
/// device that the run had. Writes nothing into the run's folder. Throws Error: kData where the
/// folder holds no recipe, and what training throws. `trusts_library`: --trust-library.
doctor::Proof prove_run(const experiment::RunData& run, bool trusts_library);

/// "the run was on host a and this is b"; "" where it was here, or the record does not say.
std::string other_host(const nlohmann::json& record);

}  // namespace brim::cli

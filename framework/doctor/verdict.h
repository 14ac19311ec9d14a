// The end of a run: its diagnosis in a few lines, kept in its record.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace brim::doctor {

/// The most lines that a run ends with.
inline constexpr size_t kVerdictLines = 3;

/// Diagnoses a run that has ended and writes what it found into run.json as "verdict": [{"rule",
/// "severity", "message", "change"}]. The worst findings, a sentence each. Throws Error(kData,
/// kResource) where the folder can't be read or written.
std::vector<std::string> conclude(const std::filesystem::path& run);

}  // namespace brim::doctor

// Command lines by cxxopts, with Brim's error kind, and the options that commands share.
#pragma once

// A --set may hold commas: several values come from repeating the option, never from splitting.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "framework/recipe/document.h"

namespace brim::cli {

/// --recipe, --config, --set, --devices: the options that name a job; and --trust-library.
void add_job_options(cxxopts::Options& options);
/// --trust-library alone.
void add_trust_option(cxxopts::Options& options);
/// --json.
void add_json_option(cxxopts::Options& options, const std::string& what = "print JSON");

/// --threads and --json: of commands that go through all images of a folder.
void add_image_work_options(cxxopts::Options& options);
/// --threads; not given: the cores.
int64_t threads_option(const cxxopts::ParseResult& options);

/// Parses what follows argv[0]. Words without a dash are values of the `positional` options. Throws
/// UsageError for an option that doesn't exist, a missing value, a stray word, or a positional
/// option given twice.
cxxopts::ParseResult parse_options(cxxopts::Options& options,
                                   const std::vector<std::string>& positional,
                                   std::span<char* const> argv);

/// The layers that the options name, of the run's `recipe` where they name none: a recipe, or the
/// file of a sweep. Throws UsageError without either.
recipe::Value load_layers(const cxxopts::ParseResult& options, const std::string& recipe = "");
/// The same for one job: throws Error(kRecipe) for the file of a sweep.
recipe::Value load_document(const cxxopts::ParseResult& options, const std::string& recipe = "");

/// An option that `trainer <command>` must be given.
std::string required_option(const cxxopts::ParseResult& options, const std::string& command,
                            const std::string& name);
/// Throws an Error unless a page may appear there: over nothing, or over another page.
void require_page(const std::filesystem::path& output);
/// Throws Error(kResource), which begins with `option`, unless files can be made in the folder.
void require_writable(std::string_view option, const std::filesystem::path& folder);
/// An option that is an integer from `low` to `high`.
int64_t integer_option(const cxxopts::ParseResult& options, const std::string& name, int64_t low,
                       int64_t high);

}  // namespace brim::cli

#include "framework/cli/options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/machine.h"
#include "framework/base/words.h"
#include "framework/cli/site_defaults.h"
#include "framework/recipe/text.h"

namespace brim::cli {
namespace {

/// "trainer help data pack" of the options of "trainer data pack".
std::string help_command_of(const cxxopts::Options& options) {
  const std::string& program = options.program();
  return "trainer help" + program.substr(std::min(program.find(' '), program.size()));
}

[[noreturn]] void refuse_option(const std::string& word,
                                const std::vector<cxxopts::HelpOptionDetails>& known,
                                const std::string& help) {
  std::vector<std::string> flags;
  for (const auto& option : known) flags.push_back("--" + option.l.front());
  const std::string near = nearest(word, {flags.begin(), flags.end()});
  if (near.empty()) throw UsageError("unknown option '{}'; see {}", word, help);
  throw UsageError("unknown option '{}'; did you mean '{}'? See {}", word, near, help);
}

struct GivenValue {
  std::string flag;  // "--steps"
  std::string value;
};

/// The options' values. Refuses in Brim's words what cxxopts would in its own: an option that does
/// not exist, a value too many or too few.
std::vector<GivenValue> read_values(const cxxopts::Options& options, std::span<char* const> argv) {
  const auto known = options.group_help("").options;
  const std::string help = help_command_of(options);
  std::vector<GivenValue> values;
  for (size_t i = 1; i < argv.size() && argv[i] != std::string_view("--"); ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with('-') || word == "-" || word == "-h") continue;
    const size_t equals = std::min(word.find('='), word.size());
    const bool has_value = equals < word.size();
    const std::string flag(word.substr(0, equals));
    const auto option = std::ranges::find_if(
        known, [&](const auto& candidate) { return flag == "--" + candidate.l.front(); });
    if (option == known.end()) refuse_option(flag, known, help);
    if (option->is_boolean && has_value) {
      throw UsageError("{}: expected no value, found '{}'; see {}", flag, word.substr(equals + 1),
                       help);
    }
    if (option->is_boolean || (option->has_implicit && !has_value)) continue;
    if (!has_value && ++i == argv.size()) {
      throw UsageError("{}: expected a value, found none; see {}", flag, help);
    }
    values.push_back({flag, has_value ? std::string(word.substr(equals + 1)) : argv[i]});
    if (values.back().value.empty()) {  // as from a shell's variable that is not set
      throw UsageError("{}: expected a value, found an empty one; see {}", flag, help);
    }
  }
  return values;
}

/// Whether cxxopts takes the value, which it does not where it is to be a number and is none.
bool is_taken(cxxopts::Options& options, const GivenValue& given) {
  const std::string word = given.flag + "=" + given.value;
  const char* const argv[] = {"trainer", word.c_str()};
  try {
    options.parse(2, argv);
    return true;
  } catch (const std::exception&) {  // cxxopts renamed its exceptions between versions
    return false;
  }
}

}  // namespace

void add_job_options(cxxopts::Options& options) {
  using cxxopts::value;
  using Strings = std::vector<std::string>;
  options.add_options()("recipe", "a recipe: a path, or a bundled one's name", value<std::string>(),
                        "RECIPE")(
      "config", "a TOML file that overrides the recipe; may be repeated", value<Strings>(), "FILE")(
      "set",
      "one key that overrides everything, as in optimizer.learning_rate=0.1; may be repeated",
      value<Strings>(),
      "KEY=VALUE")("devices", "device to run on: auto, cpu, a GPU's index, or several as in 0,1",
                   value<std::string>(), "LIST");
  add_trust_option(options);
}

void add_trust_option(cxxopts::Options& options) {
  options.add_options()("trust-library",
                        "load the library or TorchScript file that a run or a bench file names, "
                        "which runs its code");
}

void add_json_option(cxxopts::Options& options, const std::string& what) {
  options.add_options()("json", what);
}

void add_image_work_options(cxxopts::Options& options) {
  options.add_options()("threads", "decoding threads (default: the cores)",
                        cxxopts::value<int64_t>(), "N");
  add_json_option(options);
}

int64_t threads_option(const cxxopts::ParseResult& options) {
  return options.count("threads") != 0 ? integer_option(options, "threads", 1, 1024)
                                       : usable_cores();
}

cxxopts::ParseResult parse_options(cxxopts::Options& options,
                                   const std::vector<std::string>& positional,
                                   std::span<char* const> argv) {
  const std::string help = help_command_of(options);
  const std::vector<GivenValue> values = read_values(options, argv);
  try {
    options.parse_positional(positional);
    cxxopts::ParseResult result = options.parse(static_cast<int>(argv.size()), argv.data());
    if (!result.unmatched().empty()) {
      throw UsageError("unexpected argument '{}'; see {}", result.unmatched().front(), help);
    }
    for (const cxxopts::HelpOptionDetails& option : options.group_help("").options) {
      const std::string& name = option.l.front();
      const bool is_positional =
          std::ranges::find(positional, name) != positional.end() && !option.is_container;
      if (is_positional && result.count(name) > 1) {
        throw UsageError("--{}: expected one, found {}", name, result.count(name));
      }
    }
    return result;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    for (const GivenValue& given : values) {
      if (is_taken(options, given)) continue;
      const bool is_real = is_taken(options, {given.flag, "0.5"});
      throw UsageError("{}: expected {}, found '{}'; see {}", given.flag,
                       is_real ? "a number" : "a 64-bit integer", given.value, help);
    }
    throw;
  }
}

recipe::Value load_layers(const cxxopts::ParseResult& options, const std::string& recipe) {
  const bool is_named = options.count("recipe") != 0;
  if (!is_named && recipe.empty()) {
    throw UsageError(
        "no recipe given; expected a path or the name of a bundled recipe, such as digits");
  }
  recipe::LayerOptions layers{.is_of_run = !is_named,
                              .trusts_library = options.count("trust-library") != 0,
                              .defaults = is_named ? site_defaults() : nullptr};
  if (options.count("config") != 0) {
    for (const auto& path : options["config"].as<std::vector<std::string>>()) {
      layers.configs.emplace_back(path);
    }
  }
  if (options.count("set") != 0) layers.sets = options["set"].as<std::vector<std::string>>();
  if (options.count("devices") != 0) {
    // Quoted: an index must stay a string.
    layers.sets.push_back("device.select=" +
                          recipe::toml_string(options["devices"].as<std::string>()));
  }
  return recipe::load(is_named ? options["recipe"].as<std::string>() : recipe, layers);
}

recipe::Value load_document(const cxxopts::ParseResult& options, const std::string& recipe) {
  recipe::Value document = load_layers(options, recipe);
  const auto& entries = std::get<recipe::Table>(document.data).entries;
  if (const auto sweep = entries.find("sweep"); sweep != entries.end()) {
    throw Error(Exit::kRecipe, "{}: [sweep] makes many runs of a recipe: use trainer sweep",
                sweep->second.key_location.text());
  }
  return document;
}

std::string required_option(const cxxopts::ParseResult& options, const std::string& command,
                            const std::string& name) {
  if (options.count(name) == 0) {
    throw UsageError("--{} is missing; see trainer help {}", name, command);
  }
  auto value = options[name].as<std::string>();
  if (value.empty()) throw UsageError("--{} is empty; see trainer help {}", name, command);
  return value;
}

void require_page(const std::filesystem::path& output) {
  constexpr std::string_view kPage = "<!doctype html>";
  require_replaceable(output);
  std::ifstream file(output, std::ios::binary);
  if (!file) return;
  std::string start(kPage.size(), '\0');
  file.read(start.data(), std::ssize(start));
  if (start == kPage) return;
  throw Error(Exit::kRecipe,
              "--output {}: there is a file already that is no report; choose another name",
              output.string());
}

void require_writable(std::string_view option, const std::filesystem::path& folder) {
  if (::access(folder.c_str(), W_OK) == 0) return;
  throw Error(Exit::kResource, "{}: {} can't be written to: {}", option, folder.string(),
              errno_text(errno));
}

int64_t integer_option(const cxxopts::ParseResult& options, const std::string& name, int64_t low,
                       int64_t high) {
  const auto value = options[name].as<int64_t>();
  if (value < low || value > high) {
    throw UsageError("--{}: expected a number from {} to {}, found {}", name, low, high, value);
  }
  return value;
}

}  // namespace brim::cli

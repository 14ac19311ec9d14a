#include "framework/cli/self_launch.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/distributed/ranks.h"
#include "framework/launch/launcher.h"

namespace brim::cli {
namespace {

constexpr std::string_view kOption = "--devices";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool is_number(const std::string& word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The GPUs with these numbers, as CUDA_VISIBLE_DEVICES numbers them now, by its words.
std::string visible(const std::vector<std::string>& devices) {
  const char* now = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string list;
  for (const std::string& device : devices) {
    std::string word = device;
    if (now != nullptr) {
      const std::vector<std::string> words = split(now);
      const auto index = std::strtoul(device.c_str(), nullptr, 10);
      if (index >= words.size()) {
        throw Error(Exit::kResource, "GPU {} is not there: CUDA_VISIBLE_DEVICES={} leaves {}",
                    device, now, words.size());
      }
      word = words[index];
    }
    list += (list.empty() ? "" : ",") + word;
  }
  return list;
}

/// The arguments with `device` in the list's place.
std::vector<std::string> command(int argc, char** argv, const std::string& device) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe")};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kOption) {
      ++i;
    } else if (!word.starts_with(std::string(kOption) + "=")) {
      words.emplace_back(word);
    }
  }
  words.insert(words.end(), {std::string(kOption), device});
  return words;
}

}  // namespace

std::optional<int> launch_ranks(const cxxopts::ParseResult& options, int argc, char** argv) {
  if (options.count("devices") == 0) return std::nullopt;
  const auto list = options["devices"].as<std::string>();
  const std::vector<std::string> devices = split(list);
  if (devices.size() < 2) return std::nullopt;

  const bool is_cpu = std::all_of(devices.begin(), devices.end(),
                                  [](const std::string& device) { return device == "cpu"; });
  std::vector<std::string> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  const bool is_twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (!is_cpu && (is_twice || !std::all_of(devices.begin(), devices.end(), is_number))) {
    throw Error(Exit::kRecipe,
                "--devices {}: expected different GPUs' numbers, as in 0,1, or cpu,cpu for two "
                "ranks on the CPU",
                list);
  }
  if (distributed::read_ranks().launcher != "") {
    throw Error(Exit::kRecipe,
                "--devices {}: a launcher has started this rank already; leave the option out, and "
                "choose GPUs by CUDA_VISIBLE_DEVICES",
                list);
  }
  if (!is_cpu) ::setenv("CUDA_VISIBLE_DEVICES", visible(devices).c_str(), 1);
  launch::LaunchOptions launch;
  launch.command = command(argc, argv, is_cpu ? "cpu" : "cuda");
  launch.ranks_per_node = static_cast<int>(devices.size());
  return launch::launch(launch);
}

}  // namespace brim::cli

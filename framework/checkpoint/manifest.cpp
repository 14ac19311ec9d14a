#include "framework/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"

namespace brim::checkpoint {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr int64_t kFormat = 1;
constexpr JsonLimits kLimits = {.bytes = size_t{1} << 20, .depth = 4};
constexpr size_t kDigestDigits = 32;
constexpr std::string_view kAdvice = "use another checkpoint, or remove this one";

[[noreturn]] void refuse_manifest(const std::string& where, const std::string& reason) {
  throw Error(Exit::kCheckpoint, "{}: not a whole manifest: {}; {}", where, reason, kAdvice);
}

/// Takes an object apart, key by key; a key that no one took is one too many.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string what, const std::string& where)
      : what_(std::move(what)), where_(where) {
    if (!object.is_object()) refuse_manifest(where_, what_ + " must be an object");
    left_ = object;
  }

  json take(const std::string& key) {
    const auto found = left_.find(key);
    if (found == left_.end())
      refuse_manifest(where_, fmt::format("{} lacks the key '{}'", what_, key));
    json value = std::move(*found);
    left_.erase(found);
    return value;
  }

  int64_t take_count(const std::string& key) {
    const json value = take(key);
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse_manifest(where_, fmt::format("'{}' in {} must be a whole number from 0", key, what_));
    }
    return value.get<int64_t>();
  }

  std::string take_string(const std::string& key) {
    const json value = take(key);
    if (!value.is_string())
      refuse_manifest(where_, fmt::format("'{}' in {} must be text", key, what_));
    return value.get<std::string>();
  }

  /// False where it lacks the key.
  bool take_flag(const std::string& key) {
    if (!left_.contains(key)) return false;
    const json value = take(key);
    if (!value.is_boolean()) {
      refuse_manifest(where_, fmt::format("'{}' in {} must be true or false", key, what_));
    }
    return value.get<bool>();
  }

  void finish() const {
    if (left_.empty()) return;
    refuse_manifest(
        where_, fmt::format("{} has the unknown key {}", what_, in_quotes(left_.begin().key())));
  }

 private:
  json left_;
  std::string what_;
  const std::string& where_;
};

bool is_digest(std::string_view text) {
  return text.size() == kDigestDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// "" if the file is as recorded.
std::string find_damage(const fs::path& path, const FileRecord& record) {
  try {
    std::error_code unreadable;  // digest_file() says why
    const auto size = static_cast<int64_t>(fs::file_size(path, unreadable));
    if (!unreadable && size != record.size) {  // before it is read: it may be of any length
      return fmt::format("{}: {}: expected {} bytes, found {}; {}", path.string(),
                         size < record.size ? "truncated" : "too long", record.size, size, kAdvice);
    }
    const std::string found = digest_file(path);
    if (found != record.digest) {
      return fmt::format("{}: damaged: expected the digest {}, found {}; {}", path.string(),
                         record.digest, found, kAdvice);
    }
    return "";
  } catch (const Error& error) {
    return fmt::format("{}; {}", error.what(), kAdvice);
  }
}

}  // namespace

bool is_plain_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::string print_manifest(const Manifest& manifest) {
  json files = json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back({{"name", file.name}, {"size", file.size}, {"xxh3_128", file.digest}});
  }
  json top = {{"format", kFormat},
              {"step", manifest.step},
              {"sequence", manifest.sequence},
              {"files", std::move(files)}};
  if (manifest.is_best) top["best"] = true;
  return print_json(top, std::string(kManifestName), kLimits);
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  ObjectReader top(parse_json(text, where, kLimits), "it", where);
  if (const int64_t format = top.take_count("format"); format != kFormat) {
    throw Error(Exit::kCheckpoint,
                "{}: expected a checkpoint of format {}, found format {}; "
                "use the version of Brim that wrote it",
                where, kFormat, format);
  }
  Manifest manifest;
  manifest.step = top.take_count("step");
  manifest.sequence = top.take_count("sequence");
  manifest.is_best = top.take_flag("best");
  const json files = top.take("files");
  if (!files.is_array()) refuse_manifest(where, "'files' must be a list");
  top.finish();
  std::set<std::string> names;
  for (const json& item : files) {
    ObjectReader entry(item, "an entry of 'files'", where);
    FileRecord file;
    file.name = entry.take_string("name");
    file.size = entry.take_count("size");
    file.digest = entry.take_string("xxh3_128");
    entry.finish();
    if (!is_plain_name(file.name) || file.name == kManifestName) {
      refuse_manifest(where,
                      fmt::format("{} is not the plain name of a file", in_quotes(file.name)));
    }
    if (!is_digest(file.digest)) {
      refuse_manifest(where,
                      fmt::format("{} is not a digest of 32 hex digits", in_quotes(file.digest)));
    }
    if (!names.insert(file.name).second) {
      refuse_manifest(where, fmt::format("{} is listed twice", file.name));
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestName;
  std::error_code code;
  if (!fs::is_directory(checkpoint, code)) {
    throw Error(Exit::kCheckpoint, "{}: expected the folder of a checkpoint, found none",
                checkpoint.string());
  }
  if (!fs::exists(path, code)) {
    throw Error(Exit::kCheckpoint, "{}: not a whole checkpoint: it has no {}; {}",
                checkpoint.string(), kManifestName, kAdvice);
  }
  const auto limit = static_cast<int64_t>(kLimits.bytes);
  return parse_manifest(read_file(path, Exit::kCheckpoint, limit), path.string());
}

std::vector<FileRecord> record_files(const fs::path& folder,
                                     const std::vector<std::string>& names) {
  std::vector<FileRecord> records;
  for (const std::string& name : names) {
    const std::string digest = digest_file(folder / name);
    records.push_back({name, static_cast<int64_t>(fs::file_size(folder / name)), digest});
  }
  return records;
}

void verify_files(const fs::path& checkpoint, const Manifest& manifest) {
  std::string problems;
  for (const FileRecord& record : manifest.files) {
    const std::string problem = find_damage(checkpoint / record.name, record);
    if (problem.empty()) continue;
    problems += (problems.empty() ? "" : "\n") + problem;
  }
  if (!problems.empty()) throw Error(Exit::kCheckpoint, problems);
}

}  // namespace brim::checkpoint

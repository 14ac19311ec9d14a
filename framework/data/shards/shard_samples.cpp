// build_index(): how the members of a shard become samples.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/words.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/shards/tar.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 3> kImages = {"jpg", "jpeg", "png"};
constexpr std::string_view kLabel = "cls";
constexpr int64_t kMaxImageBytes = int64_t{1} << 30;
constexpr int64_t kMaxLabelBytes = 64;

/// A member's name in two: the sample's key and what the member is, in lower case.
struct SampleName {
  std::string key;
  std::string extension;
};

/// Nullopt for members that belong to no sample.
std::optional<SampleName> split(const std::string& name) {
  const std::string_view top = std::string_view(name).substr(0, name.find('/'));
  if (top.size() >= 4 && top.starts_with("__") && top.ends_with("__")) return {};
  const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  const size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base) return {};
  return SampleName{name.substr(0, dot), lower_case(name.substr(dot + 1))};
}

/// Takes members in order and adds a sample to the index whenever one is whole.
class Collector {
 public:
  Collector(const ByteSource& shard, ShardIndex& index)
      : name_(shard.name()), reader_(shard), index_(index) {}

  void run() {
    while (auto member = reader_.next()) {
      const auto name = split(member->name);
      if (!name) {
        ++index_.passed_over;
        continue;
      }
      if (name->key != key_) {
        end_sample();
        key_ = name->key;
      }
      take(*member, name->extension);
    }
    end_sample();
    index_.passed_over += reader_.passed_over();
    if (!reader_.has_more()) return;
    log::warning(
        "{}: what follows after the archive's end is not read; archives are joined by tar "
        "--concatenate",
        name_);
  }

 private:
  void take(const TarMember& member, const std::string& extension) {
    start_ = members_++ == 0 ? member.header : start_;
    if (std::ranges::find(kImages, extension) != kImages.end()) {
      if (image_) refuse_second(member, "image", image_->name);
      if (member.size > kMaxImageBytes) {
        reader_.refuse(member.header, fmt::format("expected an image of at most {} bytes, '{}' has "
                                                  "{}",
                                                  kMaxImageBytes, member.name, member.size));
      }
      image_ = member;
    } else if (extension == kLabel) {
      if (label_) refuse_second(member, "label", key_ + "." + std::string(kLabel));
      label_ = read_label(member);
    }
  }

  [[noreturn]] void refuse_second(const TarMember& member, const char* what,
                                  const std::string& first) const {
    reader_.refuse(member.header, fmt::format("expected one {} for the sample '{}', found '{}' "
                                              "after '{}'",
                                              what, key_, member.name, first));
  }

  uint32_t read_label(const TarMember& member) {
    std::string_view text;
    if (member.size <= kMaxLabelBytes) {
      const auto content = reader_.bytes(member.offset, member.size);
      text = {reinterpret_cast<const char*>(content.data()), content.size()};
    }
    constexpr std::string_view kSpace = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    uint32_t label = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (text.empty() || code != std::errc() || end != text.data() + text.size() ||
        label > kMaxLabel) {
      reader_.refuse(member.offset, fmt::format("expected a label from 0 to {} in '{}', found '{}'",
                                                kMaxLabel, member.name, text));
    }
    return label;
  }

  void end_sample() {
    if (image_.has_value() != label_.has_value()) {
      reader_.refuse(start_, fmt::format("the sample '{}' has no {}; a sample's files follow each "
                                         "other",
                                         key_, image_ ? "label (cls)" : "image (jpg, jpeg, png)"));
    }
    if (image_) {
      index_.samples.push_back(
          {static_cast<uint64_t>(image_->offset), static_cast<uint32_t>(image_->size), *label_});
      index_.names += image_->name;
      if (index_.names.size() > UINT32_MAX) reader_.refuse(start_, "names of 4 GiB");
      index_.name_ends.push_back(static_cast<uint32_t>(index_.names.size()));
    } else {
      index_.passed_over += members_;
    }
    image_.reset();
    label_.reset();
    members_ = 0;
  }

  std::string name_;
  TarReader reader_;
  ShardIndex& index_;
  // The sample that is open.
  std::string key_;
  int64_t start_ = 0;
  int64_t members_ = 0;
  std::optional<TarMember> image_;
  std::optional<uint32_t> label_;
};

}  // namespace

ShardIndex build_index(const ByteSource& shard) {
  ShardIndex index;
  index.shard_bytes = shard.size();
  Collector(shard, index).run();
  index.samples.shrink_to_fit();
  index.names.shrink_to_fit();
  index.name_ends.shrink_to_fit();
  return index;
}

}  // namespace brim::data

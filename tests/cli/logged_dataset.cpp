// A dataset that writes down which samples are really read, for the tests of trainer audit: a
// number a line, in the file rank-N of the folder that data.log names.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "framework/base/error.h"
#include "framework/data/source.h"
#include "framework/recipe/library.h"

namespace {

using brim::Error;
using brim::Exit;

class Logged final : public brim::data::ImageSamples {
 public:
  Logged(const std::filesystem::path& log, int64_t size, int64_t unreadable, int64_t delay_ms)
      : size_(size), unreadable_(unreadable), delay_(delay_ms) {
    const char* rank = std::getenv("RANK");
    std::filesystem::create_directories(log);
    const auto file = log / (std::string("rank-") + (rank != nullptr ? rank : "0"));
    fd_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) throw Error(Exit::kData, "{}: cannot open", file.string());
  }
  ~Logged() override { ::close(fd_); }

  int64_t size() const override { return size_; }
  brim::data::ImageShape shape() const override { return {.height = 4, .width = 4, .channels = 1}; }
  int64_t classes() const override { return 2; }
  std::vector<std::string> class_names() const override { return brim::data::numbered_classes(2); }
  std::string name(int64_t index) const override { return "logged[" + std::to_string(index) + "]"; }
  int64_t label(int64_t index) const override { return index % 2; }

  /// For balancing by cost.
  std::optional<int64_t> length(int64_t index) const override { return index * 7 % 11 + 1; }

  int64_t read(int64_t index, brim::RandomStream* /*random*/,
               std::span<uint8_t> pixels) const override {
    std::this_thread::sleep_for(delay_);
    if (index == unreadable_) throw Error(Exit::kData, "{}: unreadable", name(index));
    const std::string line = std::to_string(index) + "\n";
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw Error(Exit::kResource, "the log of samples: cannot write");
    }
    for (uint8_t& pixel : pixels) pixel = label(index) == 0 ? 40 : 200;
    return label(index);
  }

 private:
  int64_t size_;
  int64_t unreadable_;
  std::chrono::milliseconds delay_;
  int fd_;
};

struct LoggedConfig : brim::data::SourceConfig {
  std::string log;
  int64_t samples = 100;
  int64_t unreadable = -1;
  int64_t delay_ms = 0;
  void fields(brim::recipe::Fields& f) override {
    f.value("log", log, "folder of the files rank-N", brim::recipe::Need::kRequired);
    f.value("samples", samples, "training images", brim::recipe::at_least(1));
    f.value("unreadable", unreadable, "the sample that cannot be read", brim::recipe::at_least(-1));
    f.value("delay_ms", delay_ms, "what reading a sample takes", brim::recipe::at_least(0));
  }
  std::unique_ptr<brim::data::Dataset> open_train(
      const brim::data::AugmentConfig& /*augment*/) const override {
    return std::make_unique<Logged>(log, samples, unreadable, delay_ms);
  }
  std::unique_ptr<brim::data::Dataset> open_eval() const override { return nullptr; }
};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::data::SourceConfig>().add<LoggedConfig>("logged",
                                                                       "writes down its reads");
}

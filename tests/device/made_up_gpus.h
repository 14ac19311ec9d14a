// GPUs of the fake library (fake_nvml.cpp), which a test describes and changes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/support/temporary_folder.h"

namespace brim::device {

class MadeUpGpus {
 public:
  explicit MadeUpGpus(int count) {
    ::setenv("BRIM_FAKE_NVML", (folder_ / "gpus").c_str(), 1);
    set("gpus", std::to_string(count));
    for (int gpu = 0; gpu < count; ++gpu) {
      set(gpu, "uuid", "GPU-" + std::to_string(gpu) + "aaa-bbb");
      set(gpu, "name", "NVIDIA Fake");
      set(gpu, "memory_total", "80000000000");
      set(gpu, "memory_used", "1000000000");
      set(gpu, "busy", "0");
    }
  }
  ~MadeUpGpus() { ::unsetenv("BRIM_FAKE_NVML"); }
  MadeUpGpus(const MadeUpGpus&) = delete;
  MadeUpGpus& operator=(const MadeUpGpus&) = delete;

  void set(const std::string& key, const std::string& value) {
    lines_[key] = value;
    std::string text;
    for (const auto& [name, content] : lines_) text += name + " = " + content + "\n";
    brim::testing::put_content(folder_ / "new", text);  // a thread may be reading
    std::filesystem::rename(folder_ / "new", folder_ / "gpus");
  }
  void set(int gpu, const std::string& key, const std::string& value) {
    set(std::to_string(gpu) + "." + key, value);
  }

 private:
  brim::testing::TemporaryFolder folder_;
  std::map<std::string, std::string> lines_;
};

}  // namespace brim::device

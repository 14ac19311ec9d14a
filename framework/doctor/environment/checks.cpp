#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

const std::vector<Check>& all_checks() {
  static const std::vector<Check> checks = {
      {"driver", check_driver},
      {"cuda", check_cuda},
      {"libtorch", check_libtorch},
      {"cudnn", check_cudnn},
      {"nccl", check_nccl},
      {"architectures", check_architectures},
      {"visible devices", check_visible_devices},
      {"gpu health", check_gpu_health},
      {"persistence mode", check_persistence},
      {"pcie", check_pcie},
      {"numa", check_numa},
      {"open files", check_open_files},
      {"locked memory", check_locked_memory},
      {"shared memory", check_shared_memory},
      {"disk", check_disk},
      {"cpu governor", check_governor},
      {"huge pages", check_huge_pages},
      {"container", check_container},
      {"swap", check_swap},
      {"cpu load", check_load},
  };
  return checks;
}

}  // namespace brim::doctor::environment

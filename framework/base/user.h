// Who runs this program and others: names of users and groups, or their numbers where they have no
// name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace brim {

std::string user_name(uid_t user);

/// The groups of this process: the effective one and all others.
std::vector<std::string> group_names();

/// Whose process that is; nullopt where it is gone, or another container's.
std::optional<uid_t> process_user(int64_t process);

}  // namespace brim

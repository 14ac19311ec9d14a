// Locks of files that other processes may hold, alone or together. Where that is an error, FileLock
// (files.h) says it.
#pragma once

#include <filesystem>
#include <memory>

#include "framework/base/descriptor.h"

namespace brim {

enum class LockKind { kExclusive, kShared };

/// An empty file, made where it isn't there, that is locked while the descriptor is open; null where
/// another process holds it, or, for kExclusive, shares it. File systems without locks refuse no one.
/// Throws Error(kResource) where the file can't be opened.
std::unique_ptr<Descriptor> try_lock(const std::filesystem::path& path,
                                     LockKind kind = LockKind::kExclusive);

}  // namespace brim

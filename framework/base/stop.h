// SIGINT and SIGTERM as a request that the training loop reads once a step. The first asks for a
// finished step and a checkpoint; the second ends the process at once (files stay whole, because
// they only ever appear by rename).
#pragma once

namespace brim {

/// Installs the handlers; call once, before threads start. A limit on the size of files (ulimit -f)
/// then is a write error in words, no longer a signal that kills.
void install_stop_handlers();

/// True once a stop was asked for.
bool stop_requested();

}  // namespace brim

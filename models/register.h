// The list of models by name. Static self-registration is lost in static libraries, so it is a
// call.
#pragma once

namespace brim::models {

/// Registers every model of models/; call once at program start.
void register_all();

}  // namespace brim::models

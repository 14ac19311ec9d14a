// What an error advises where a job needs more memory than it may take.
#pragma once

#include <string>

namespace brim::device {

/// "give the job more memory (device.memory_gib)", or what set_memory_rule() said last.
std::string more_memory();
/// Where a rule of the machine caps memory, whom to ask and the rule; "": no rule does. Not
/// thread-safe: call it before threads start.
void set_memory_rule(std::string advice);

}  // namespace brim::device

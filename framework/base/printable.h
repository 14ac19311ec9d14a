// Text from files, folders and other machines, made safe to show: a terminal acts on control
// characters, and a name may hold any.
#pragma once

#include <string>
#include <string_view>

namespace brim {

/// Control characters (C0, DEL, C1) and bytes that are not UTF-8 as \xNN. For a name in a line.
std::string printable(std::string_view text);

/// The same with line feeds and tabs as they are. For whole lines and tables.
std::string printable_lines(std::string_view text);

/// An http(s) address without user, password, query and fragment, which may be secret.
std::string shown_address(const std::string& address);

/// The same of every http(s) address in a text, each up to a blank or a quotation mark.
std::string without_secrets(std::string_view text);

bool is_utf8(std::string_view text);

/// A word of a command for a POSIX shell, in quotes where the shell would take it for something
/// else.
std::string shell_word(std::string_view text);

}  // namespace brim

#include "framework/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/version.h"

namespace brim::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kOptionColumn = 26;  // where an option's description begins

/// The text in lines of at most 80 columns, each after the first indented.
std::string wrap(std::string_view text, size_t indent) {
  std::string wrapped;
  size_t column = indent;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      wrapped += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
  }
  return wrapped;
}

/// "  left        right", the right side wrapped; from a line of its own where the left is long.
std::string row(const std::string& left, std::string_view right, size_t column) {
  std::string text = "  " + left;
  if (text.size() + 2 > column) {
    text += "\n" + std::string(column, ' ');
  } else {
    text.append(column - text.size(), ' ');
  }
  return text + wrap(right, column) + "\n";
}

std::string usage_of(const Command& command) {
  return fmt::format("trainer {}{}{} [OPTIONS]", command.name, command.arguments.empty() ? "" : " ",
                     command.arguments);
}

/// roff treats a backslash, and a dot or quote at a line's start, as its own; a plain "-" may
/// become a typographic one.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (escaped.empty() || escaped.back() == '\n')) escaped += "\\&";
      escaped += c;
    }
  }
  return escaped;
}

std::string dashed(std::string_view name) {
  std::string page(name);
  std::ranges::replace(page, ' ', '-');
  return page;
}

std::string man_head(const std::string& page, std::string_view summary) {
  return fmt::format(".TH {} 1 \"\" \"Brim {}\"\n.SH NAME\n{} \\- {}\n", page, brim_version(), page,
                     roff(summary));
}

std::string man_page(const Command& command) {
  std::string text = man_head("trainer-" + dashed(command.name), command.summary);
  text += fmt::format(".SH SYNOPSIS\n.B {}\n.SH DESCRIPTION\n{}\n", roff(usage_of(command)),
                      roff(command.details));
  const OptionTexts options = texts_of(command);
  text += ".SH OPTIONS\n";
  for (const auto* list : {&options.positional, &options.named}) {
    for (const OptionText& option : *list) {
      text += fmt::format(".TP\n.B {}\n{}\n", roff(option.flags), roff(option.what));
    }
  }
  if (!command.examples.empty()) text += ".SH EXAMPLES\n";
  for (const Example& example : command.examples) {
    text +=
        fmt::format("{}:\n.PP\n.nf\n    {}\n.fi\n.PP\n", roff(example.purpose), roff(example.line));
  }
  return text + ".SH SEE ALSO\n.BR trainer (1)\n";
}

constexpr std::string_view kStatuses =
    "0 done; 1 a bug in Brim; 2 the recipe or the command line; 3 the data; 4 a checkpoint; 5 the "
    "machine: memory, disk, drivers; 6 another rank or the network; 7 the loss is not finite; 75 "
    "stopped on request, the state saved.";

constexpr std::string_view kPurpose =
    "Trains neural networks in mixed precision, fills the memory, and says where the time goes.";

}  // namespace

OptionTexts texts_of(const Command& command) {
  OptionTexts texts;
  const cxxopts::Options options = options_of(command);
  for (const cxxopts::HelpOptionDetails& option : options.group_help("").options) {
    OptionText text{
        .name = option.l.front(),
        .flags = (option.s.empty() ? "" : "-" + option.s + ", ") + "--" + option.l.front(),
        .what = option.desc,
        .takes_value = !option.is_boolean,
        .value = option.arg_help};
    if (text.takes_value) text.flags += " " + (text.value.empty() ? "N" : text.value);
    if (option.has_default && text.takes_value)
      text.what += " (default: " + option.default_value + ")";
    const bool is_positional =
        std::ranges::find(command.positional, text.name) != command.positional.end();
    (is_positional ? texts.positional : texts.named).push_back(std::move(text));
  }
  return texts;
}

std::string overview(std::string_view word) {
  std::string text =
      word.empty() ? fmt::format("usage: trainer COMMAND [OPTIONS]\n\n{}\n", wrap(kPurpose, 0))
                   : fmt::format("usage: trainer {} COMMAND [OPTIONS]\n", word);
  for (const CommandGroup& group : command_groups()) {
    std::string rows;
    for (const Command& command : group.commands) {
      if (!word.empty() && !command.name.starts_with(std::string(word) + " ")) continue;
      rows += row(std::string(command.name), command.summary, kOptionColumn);
    }
    if (!rows.empty()) text += fmt::format("\n{}:\n{}", group.title, rows);
  }
  if (word.empty()) {
    text +=
        "\nExamples:\n"
        "  trainer train digits\n"
        "      trains recipes/digits.toml; `trainer --recipe digits` does the same\n"
        "  trainer doctor runs/digits\n"
        "      says what slows that run down\n";
  }
  return text + fmt::format("\n`trainer help {}` says more of one.\n",
                            word.empty() ? "COMMAND" : std::string(word) + " COMMAND");
}

std::string help_of(const Command& command) {
  std::string text =
      fmt::format("usage: {}\n\n{}\n", wrap(usage_of(command), 7), wrap(command.details, 0));
  const OptionTexts options = texts_of(command);
  const auto add = [&](std::string_view title, const std::vector<OptionText>& list) {
    if (!list.empty()) text += fmt::format("\n{}:\n", title);
    for (const OptionText& option : list) text += row(option.flags, option.what, kOptionColumn);
  };
  add("Arguments (the option's name may be left out)", options.positional);
  add("Options", options.named);
  if (!command.examples.empty()) text += "\nExamples:\n";
  for (const Example& example : command.examples) {
    text += fmt::format("  {}\n      {}\n", example.line, wrap(example.purpose, 6));
  }
  return text;
}

void write_man_pages(const std::filesystem::path& folder) {
  std::string index = man_head("trainer", "trains neural networks in mixed precision");
  index += fmt::format(".SH SYNOPSIS\n.B trainer COMMAND [OPTIONS]\n.SH DESCRIPTION\n{}\n",
                       roff(kPurpose));
  for (const CommandGroup& group : command_groups()) {
    index += fmt::format(".SS {}\n", roff(group.title));
    for (const Command& command : group.commands) {
      index += fmt::format(".TP\n.BR trainer\\-{} (1)\n{}\n", roff(dashed(command.name)),
                           roff(command.summary));
      write_file(folder / fmt::format("trainer-{}.1", dashed(command.name)), man_page(command));
    }
  }
  index += fmt::format(".SH EXIT STATUS\n{}\n", roff(kStatuses));
  write_file(folder / "trainer.1", index);
}

}  // namespace brim::cli

#include "framework/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/cli/help.h"
#include "framework/recipe/lookup.h"
#include "framework/recipe/read.h"
#include "framework/train/job.h"

namespace brim::cli {
namespace {

/// What shells offer, each a list with blanks between.
struct Words {
  std::string names;  // first words of the commands
  std::string recipes;
  std::string configs;
  std::string keys;    // "optimizer.name="
  std::string values;  // "optimizer.name=sgd", of keys that take few words
};

void append(std::string& list, std::string_view word) {
  if (!list.empty()) list += ' ';
  list += word;
}

/// The keys under an object of the recipe's JSON Schema, and those with the words they take.
void add_keys(const nlohmann::json& object, const std::string& prefix, std::set<std::string>& keys,
              std::set<std::string>& values) {
  for (const auto& part : object.value("allOf", nlohmann::json::array())) {
    add_keys(part["then"], prefix, keys, values);  // of each component
  }
  for (const auto& [name, schema] : object["properties"].items()) {
    const std::string key = prefix + name;
    const bool is_other = !schema.is_object() || schema.contains("const");  // see the components
    if (is_other || schema.contains("deprecated") || key == "extends") continue;  // no --set either
    if (schema.contains("properties")) {
      add_keys(schema, key + ".", keys, values);
      continue;
    }
    keys.insert(key + "=");
    if (schema.value("type", "") == "boolean") values.insert({key + "=true", key + "=false"});
    if (schema.contains("anyOf")) values.insert(key + "=auto");
    for (const auto& word : schema.value("enum", nlohmann::json::array())) {
      values.insert(fmt::format("{}={}", key, word.get<std::string>()));
    }
  }
}

template <class Visit>
void for_each_command(Visit visit) {
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) visit(command);
  }
}

/// Whether "sweep" is a command by itself, as well as the first word of others.
bool is_command(std::string_view word) {
  bool is_found = false;
  for_each_command([&](const Command& command) { is_found |= command.name == word; });
  return is_found;
}

/// The first words of all commands, and for those of two words the second ones.
std::vector<std::pair<std::string, std::string>> words_of_commands() {
  std::vector<std::pair<std::string, std::string>> words;
  for_each_command([&](const Command& command) {
    const size_t space = std::min(command.name.find(' '), command.name.size());
    const std::string first(command.name.substr(0, space));
    if (words.empty() || words.back().first != first) words.emplace_back(first, "");
    if (space < command.name.size()) append(words.back().second, command.name.substr(space + 1));
  });
  return words;
}

Words all_words() {
  Words words;
  for (const auto& [word, actions] : words_of_commands()) append(words.names, word);
  words.recipes = fmt::format("{}", fmt::join(recipe::bundled_names("recipes"), " "));
  words.configs = fmt::format("{}", fmt::join(recipe::bundled_names("configs"), " "));
  train::JobConfig job;
  std::set<std::string> keys;
  std::set<std::string> values;
  add_keys(nlohmann::json::parse(recipe::json_schema(job)), "", keys, values);
  words.keys = fmt::format("{}", fmt::join(keys, " "));
  words.values = fmt::format("{}", fmt::join(values, " "));
  return words;
}

/// "auto" of "auto|PATH": what is not in capitals is a word to type.
std::string words_in(std::string_view value) {
  std::string words;
  for (size_t start = 0; start < value.size();) {
    const size_t end = std::min(value.find('|', start), value.size());
    const std::string_view word = value.substr(start, end - start);
    const bool is_typed = std::ranges::all_of(
        word, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
    if (is_typed) append(words, word);
    start = end + 1;
  }
  return words;
}

enum class Kind { kFile, kWord, kName, kRecipe, kSide, kConfig, kKey };

Kind kind_of(const OptionText& option) {
  if (option.value == "RECIPE") return Kind::kRecipe;
  if (option.value.starts_with("RECIPE|FILE")) return Kind::kSide;
  if (option.value.starts_with("KEY=")) return Kind::kKey;
  if (option.value == "COMMAND") return Kind::kName;
  if (option.name == "config") return Kind::kConfig;
  return words_in(option.value).empty() ? Kind::kFile : Kind::kWord;
}

// --- bash and zsh -------------------------------------------------------------------------------

constexpr std::string_view kPairs = "@PAIRS@";  // where the commands of two words go
constexpr std::string_view kOffersBegin = R"sh(  offers= files= current=
  if [[ $# -eq 1 && $1 != -* ]]; then
    current=$1 offers=$names
    return
  fi
  local command=$1 before= count=$#
  [[ $1 != -* ]] || command=train
  case "$1 ${2-}" in
    @PAIRS@) command="$1 $2" ;;
  esac
  while (( $# > 1 )); do
    before=$1
    shift
  done
  current=$1
  if [[ $count -eq 2 || $command == help ]]; then
    case $before in
)sh";

constexpr std::string_view kOffersMiddle = R"sh(    esac
    [[ -z $offers ]] || return 0
  fi
  if [[ $current == --*=* ]]; then
    before=${current%%=*} current=${current#*=}
  elif [[ $current == -* ]]; then
    case $command in
)sh";

constexpr std::string_view kBash = R"sh(
_trainer() {
  local offers files current typed word last= given=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do  # bash cuts at "="
    if [[ ${#given[@]} -gt 0 && -n $word && ($word == = || $last == =) ]]; then
      given[-1]+=$word
    else
      given+=("$word")
    fi
    last=$word
  done
  _trainer_offers "${given[@]}"
  typed=${given[-1]}
  COMPREPLY=($(compgen -P "${typed%"$current"}" -W "$offers" -- "$current"))
  if [[ $COMP_WORDBREAKS == *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*=}"}"}")
  fi
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current"
      compgen -f -X "!$files" -- "$current")
  fi
  [[ ${COMPREPLY-} != *= ]] || compopt -o nospace 2>/dev/null
  return 0
}
complete -o default -F _trainer trainer
)sh";

constexpr std::string_view kZsh = R"sh(
_trainer() {
  local offers files current done=1
  _trainer_offers "${(@)words[2,CURRENT-1]}" "$PREFIX"
  local -a found=(${=offers})
  [[ $PREFIX != --*=* ]] || compset -P 1 '*='
  compadd -S '' -- ${(M)found:#*=} && done=0
  compadd -- ${found:#*=} && done=0
  if [[ -n $files || ${#found} -eq 0 ]]; then
    _files ${files:+-g"$files"} && done=0
  fi
  return done
}
if [[ ${funcstack[1]-} == _trainer ]]; then  # loaded from a folder of $fpath
  _trainer "$@"
else
  (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit; }
  compdef _trainer trainer
fi
)sh";

/// A function of the words behind `trainer`, up to the one being typed: sets `current` to what is
/// typed of it, `offers` to what it may become, and `files` to a pattern of files that it may name
/// as well.
std::string offers_function() {
  const Words words = all_words();
  std::string text = "_trainer_offers() {\n";
  text += fmt::format("  local names='{}'\n  local recipes='{}' configs='{}'\n", words.names,
                      words.recipes, words.configs);
  text += fmt::format("  local keys='{}'\n  local values='{}'\n", words.keys, words.values);
  std::string pairs;
  for_each_command([&](const Command& command) {
    if (command.name.find(' ') == std::string_view::npos) return;
    pairs += fmt::format("{}'{}'", pairs.empty() ? "" : "|", command.name);
  });
  std::string begin(kOffersBegin);
  begin.replace(begin.find(kPairs), kPairs.size(), pairs);
  text += begin;
  for (const auto& [word, actions] : words_of_commands()) {
    if (actions.empty()) continue;
    if (is_command(word)) {
      text += fmt::format(
          "      {}) if [[ $command == help ]]; then offers='{}'\n"
          "      elif [[ $current != -* ]]; then offers=\"{} $recipes\" files='*.toml'; fi ;;\n",
          word, actions, actions);
    } else {
      text += fmt::format("      {}) offers='{}' ;;\n", word, actions);
    }
  }
  text += kOffersMiddle;

  std::map<std::string, std::string> options_for;     // what is offered → "'train --set'|…"
  std::map<std::string, std::string> positional_for;  // the same of words without an option
  const auto add = [](std::string& patterns, std::string_view pattern) {
    patterns += (patterns.empty() ? "" : "|") + std::string(pattern);
  };
  for_each_command([&](const Command& command) {
    std::string names;
    const OptionTexts options = texts_of(command);
    for (const auto* list : {&options.named, &options.positional}) {
      for (const OptionText& option : *list) {
        append(names, "--" + option.name);
        if (!option.takes_value) continue;
        std::string offer = ":";  // any file
        switch (kind_of(option)) {
          case Kind::kFile:
            break;
          case Kind::kWord:
            offer = fmt::format("offers='{}'", words_in(option.value));
            break;
          case Kind::kName:
            offer = "offers=$names";
            break;
          case Kind::kRecipe:
            offer = "offers=$recipes files='*.toml'";
            break;
          case Kind::kSide:
            offer = "offers=$recipes files='*'";
            break;
          case Kind::kConfig:
            offer = "offers=$configs files='*.toml'";
            break;
          case Kind::kKey:
            offer = "[[ $current == *=* ]] && offers=$values || offers=$keys";
            break;
        }
        add(options_for[offer], fmt::format("'{} --{}'", command.name, option.name));
        if (list == &options.positional) {
          add(positional_for[offer], fmt::format("'{} '*", command.name));
        }
      }
    }
    text += fmt::format("      '{}') offers='{}' ;;\n", command.name, names);
  });
  text += "    esac\n    return 0\n  fi\n  case \"$command $before\" in\n";
  for (const auto* list : {&options_for, &positional_for}) {
    for (const auto& [offer, patterns] : *list) {
      text += fmt::format("    {}) {} ;;\n", patterns, offer);
    }
  }
  return text + "  esac\n}\n";
}

// --- fish ---------------------------------------------------------------------------------------

constexpr std::string_view kFish = R"fish(complete -c trainer -e
function __trainer_at  # the cursor stands behind `trainer` and these words
    set -l given (commandline -opc)
    set -e given[1]
    test "$given" = "$argv"
end
function __trainer_is  # the command is this one; options alone are train's
    set -l given (commandline -opc)
    set -e given[1]
    test (count $given) -eq 0; and set given (commandline -ct)
    string match -q -- '-*' "$given[1]"; and set -p given train
    test "$given[1.."(count $argv)"]" = "$argv"
end
)fish";

std::string in_fish_quotes(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "\\'" : std::string(1, c);
  return quoted + "'";
}

/// What follows `complete` to offer an option's values.
std::string fish_offer(const OptionText& option, const Words& words) {
  switch (kind_of(option)) {
    case Kind::kFile:
      return "";
    case Kind::kWord:
      return " -f -a '" + words_in(option.value) + "'";
    case Kind::kName:
      return " -f -a '" + words.names + "'";
    case Kind::kRecipe:
    case Kind::kSide:
      return " -a '" + words.recipes + "'";
    case Kind::kConfig:
      return " -a '" + words.configs + "'";
    case Kind::kKey:
      return " -f -a '(__trainer_keys)'";
  }
  return "";
}

std::string fish_script() {
  const Words words = all_words();
  std::string text(kFish);
  text += fmt::format(
      "function __trainer_keys\n"
      "    if string match -q '*=*' -- (string replace -r '^--[^=]*=' '' -- (commandline -ct))\n"
      "        string split ' ' '{}'\n"
      "    else\n"
      "        string split ' ' '{}'\n"
      "    end\n"
      "end\n",
      words.values, words.keys);
  for (const auto& [word, actions] : words_of_commands()) {
    if (actions.empty()) continue;
    text += fmt::format("complete -c trainer -n __trainer_at -f -a {}\n", word);
    text +=
        fmt::format("complete -c trainer -n '__trainer_at help {}' -f -a '{}'\n", word, actions);
  }
  for_each_command([&](const Command& command) {
    const size_t space = command.name.find(' ');
    const bool is_pair = space != std::string_view::npos;
    std::string is_this = fmt::format("__trainer_is {}", command.name);
    for (const auto& [word, actions] : words_of_commands()) {
      if (word != command.name || actions.empty()) continue;
      is_this += fmt::format("; and not contains -- (commandline -opc)[3] {}", actions);
    }
    text +=
        fmt::format("complete -c trainer -n '__trainer_at{}' -f -a {} -d {}\n",
                    is_pair ? " " + std::string(command.name.substr(0, space)) : "",
                    command.name.substr(is_pair ? space + 1 : 0), in_fish_quotes(command.summary));
    const OptionTexts options = texts_of(command);
    for (const auto* list : {&options.named, &options.positional}) {
      for (const OptionText& option : *list) {
        const std::string offer = option.takes_value ? " -r" + fish_offer(option, words) : "";
        text += fmt::format("complete -c trainer -n '{}' -l {}{} -d {}\n", is_this, option.name,
                            offer, in_fish_quotes(option.what));
      }
    }
    for (const OptionText& option : options.positional) {
      const std::string offer = fish_offer(option, words);
      if (!offer.empty()) {
        text +=
            kind_of(option) == Kind::kName
                ? fmt::format("complete -c trainer -n '__trainer_at {}'{}\n", command.name, offer)
                : fmt::format("complete -c trainer -n '{}'{}\n", is_this, offer);
      }
    }
  });
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return offers_function() + std::string(kBash);
  if (shell == "zsh") return "#compdef trainer\n" + offers_function() + std::string(kZsh);
  if (shell == "fish") return fish_script();
  throw UsageError(
      "trainer completion: expected bash, zsh or fish, found {}; see trainer help completion",
      shell.empty() ? "none" : fmt::format("'{}'", shell));
}

}  // namespace brim::cli

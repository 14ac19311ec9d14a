#include "framework/text/piece_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/words.h"
#include "framework/text/unicode.h"

namespace brim::text {
namespace {

constexpr size_t kRead = size_t{256} << 10;
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kMaxText = size_t{16} << 20;
constexpr size_t kMaxLine = size_t{64} << 20;

bool has_lines_of_json(const std::string& path) {
  const std::string name = lower_case(path);
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
}

/// "text" of the JSON object on a line.
std::string document_of(std::string_view line, const std::string& where) {
  nlohmann::json value;
  try {
    value = parse_json(line, where);
  } catch (const Error& error) {
    throw Error(Exit::kData, "{}", error.what());
  }
  if (value.is_object()) {
    if (const auto text = value.find("text"); text != value.end() && text->is_string()) {
      return text->get<std::string>();
    }
  }
  throw Error(Exit::kData, "{}: expected a JSON object with a string \"text\"", where);
}

}  // namespace

void for_each_document(const Piece& lines, const std::function<void(std::string_view)>& take) {
  std::string_view rest = lines.text;
  for (int64_t number = lines.line; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    take(document_of(line, fmt::format("{}:{}", lines.name, number)));
  }
}

PieceReader::PieceReader(std::string path, SafeCut safe_cut, int64_t eval_from)
    : path_(std::move(path)),
      safe_cut_(std::move(safe_cut)),
      eval_from_(eval_from),
      is_lines_(has_lines_of_json(path_)),
      file_(path_),
      is_eval_(eval_from <= 0) {}

std::optional<Piece> PieceReader::next() {
  for (size_t wanted = kPiece;; wanted *= 2) {
    if (fill(wanted)) {
      if (const auto start = find_eval(buffer_.size())) return take(*start, true);
      if (buffer_.empty() && !in_document_) return std::nullopt;
      return take(buffer_.size(), true);
    }
    size_t cut = find_cut();
    if (const auto start = find_eval(cut)) return take(*start, true);
    if (cut > 0) return take(cut, false);
  }
}

/// Reads on until the buffer holds `wanted` bytes; true where the file has no more.
bool PieceReader::fill(size_t wanted) {
  while (!at_end_ && buffer_.size() < wanted) {
    at_end_ = !file_.read(buffer_, kRead);
    check_utf8();
  }
  return at_end_;
}

void PieceReader::check_utf8() {
  const std::string_view fresh = std::string_view(buffer_).substr(checked_);
  const size_t good = well_formed_bytes(fresh);
  checked_ += good;
  if (good + (at_end_ ? 0 : cut_off_bytes(fresh)) == fresh.size()) return;
  throw Error(Exit::kData, "{}: expected UTF-8, found the byte 0x{:02X} at byte {}", path_,
              static_cast<uint8_t>(buffer_[checked_]), offset_ + static_cast<int64_t>(checked_));
}

/// Where the buffer, which continues in the file, is cut; 0: more has to be read first.
size_t PieceReader::find_cut() {
  if (is_lines_) {
    const size_t newline = buffer_.rfind('\n');
    if (newline != std::string::npos) return newline + 1;
    if (buffer_.size() < kMaxLine) return 0;
    throw Error(Exit::kData, "{}:{}: expected lines of at most {} bytes, found a longer one", path_,
                line_, kMaxLine);
  }
  const size_t cut = safe_cut_(std::string_view(buffer_).substr(0, checked_));
  return cut > 0 || buffer_.size() < kMaxText ? cut : checked_;
}

/// Where the text for evaluation begins, if that is in the first `before` bytes of the buffer.
std::optional<size_t> PieceReader::find_eval(size_t before) const {
  if (is_eval_ || offset_ + static_cast<int64_t>(before) < eval_from_) return std::nullopt;
  const auto from = static_cast<size_t>(std::max<int64_t>(eval_from_ - 1 - offset_, 0));
  const size_t newline = buffer_.find('\n', from);
  if (newline == std::string::npos || newline + 1 > before) return std::nullopt;
  return newline + 1;
}

Piece PieceReader::take(size_t size, bool ends_document) {
  Piece piece = {buffer_.substr(0, size), path_, is_lines_ ? line_ : 0, is_eval_, ends_document};
  buffer_.erase(0, size);
  checked_ -= size;
  offset_ += static_cast<int64_t>(size);
  if (is_lines_) line_ += std::ranges::count(piece.text, '\n');
  in_document_ = !is_lines_ && !ends_document;
  if (offset_ >= eval_from_ && ends_document) is_eval_ = true;
  return piece;
}

}  // namespace brim::text

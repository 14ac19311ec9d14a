#include "framework/text/byte_tokenizer.h"

#include <array>

namespace brim::text {
namespace {

class ByteEncoder final : public Encoder {
 public:
  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  }
};

constexpr std::array<char, 256> make_bytes() {
  std::array<char, 256> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}
constexpr std::array<char, 256> kBytes = make_bytes();

}  // namespace

std::unique_ptr<Encoder> ByteTokenizer::encoder() const { return std::make_unique<ByteEncoder>(); }

std::string_view ByteTokenizer::bytes(int32_t id) const {
  check(id);
  return id == end_of_text() ? kEndOfText
                             : std::string_view(&kBytes.at(static_cast<size_t>(id)), 1);
}

}  // namespace brim::text

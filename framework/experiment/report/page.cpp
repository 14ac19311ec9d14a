#include "framework/experiment/report/page.h"

#include <fmt/format.h>

#include <span>

#include "framework/base/files.h"
#include "framework/experiment/report/html.h"

namespace brim::experiment {
namespace {

constexpr size_t kVersionDigits = 16;

std::string head_of(const Page& page, std::string_view policy) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">{}"
      "<title>{}</title>\n<style>{}{}</style></head>\n<body><main>\n",
      policy, escape_html(page.title), page_style(), page.style);
}

std::string version_of(const Block& block) {
  return digest(std::as_bytes(std::span(block.html))).substr(0, kVersionDigits);
}

std::string wrapped(const Block& block, const std::string& version, bool has_content) {
  return fmt::format(R"(<div data-block="{}" data-version="{}">{}</div>)", block.name, version,
                     has_content ? block.html : "");
}

}  // namespace

std::string frozen_page(const Page& page) {
  std::string html = head_of(
      page,
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">");
  for (const Block& block : page.blocks) html += block.html;
  return html + fmt::format(
                    "</main><div id=\"tip\" "
                    "aria-live=\"polite\"></div>\n<script>{}</script></body></html>\n",
                    page_script());
}

std::string live_page(const Page& page, const std::string& nonce, const std::string& way_back) {
  std::string html = head_of(page, "");
  html += fmt::format("<p id=\"live\">{}<span role=\"status\">Live</span></p>\n", way_back);
  for (const Block& block : page.blocks) html += wrapped(block, version_of(block), true);
  return html + fmt::format(
                    "</main><div id=\"tip\" aria-live=\"polite\"></div>\n"
                    "<script nonce=\"{}\">{}{}</script></body></html>\n",
                    nonce, page_script(), live_script());
}

std::string changes_of(const Page& page, std::string_view versions) {
  const std::string known = fmt::format(",{},", versions);
  std::string html;
  for (const Block& block : page.blocks) {
    const std::string version = version_of(block);
    const bool is_known = known.find("," + version + ",") != std::string::npos;
    html += wrapped(block, version, !is_known);
  }
  return html;
}

}  // namespace brim::experiment

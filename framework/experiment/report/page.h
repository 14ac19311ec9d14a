// A page of ours: blocks of HTML with the style and the script that all pages share. Frozen into
// one file, or served live, where a block that has changed takes the place of the old one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brim::experiment {

/// A part of a page, which a live one replaces as a whole.
struct Block {
  std::string name;  // one word of letters
  std::string html;  // "" where there is nothing to show (yet)
};

struct Page {
  std::string title;       // as text: it is escaped here
  std::string style = {};  // besides page_style()
  std::vector<Block> blocks = {};
};

/// One HTML file that needs no network and no other file.
std::string frozen_page(const Page& page);

/// The page for a browser that asks for its changes every 1.5 s. `nonce` is that of the policy for
/// scripts in the answer's head; `way_back` a link above the page, "" for none.
std::string live_page(const Page& page, const std::string& nonce, const std::string& way_back = "");

/// What a live page asks for, with the versions that it has as "v1,v2,…": every block with its
/// version, those it has without content.
std::string changes_of(const Page& page, std::string_view versions);

/// Light and dark by the reader's own choice, one column on a phone.
std::string_view page_style();

/// Values under the pointer, zoom, log scale, smoothing, lines that are hidden, sorted tables.
/// Without it the page shows the same.
std::string_view page_script();

/// Fetches the changes of a live page.
std::string_view live_script();

}  // namespace brim::experiment

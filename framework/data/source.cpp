#include "framework/data/source.h"

#include "framework/data/sources/cifar.h"
#include "framework/data/sources/idx_source.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/synthetic.h"
#include "framework/data/sources/synthetic_tokens.h"
#include "framework/data/sources/tokens.h"
#include "framework/data/sources/webdataset.h"

namespace brim::data {

void register_sources() {
  auto& sources = recipe::registry<SourceConfig>();
  sources.add<CifarConfig>("cifar", "CIFAR-10 and CIFAR-100 in their binary versions");
  sources.add<IdxConfig>("idx", "images and labels in IDX files, as MNIST comes");
  sources.add<ImageFolderConfig>("image_folder", "JPEG and PNG files in a folder for each class");
  sources.add<SyntheticConfig>("synthetic", "made-up images with a pattern for each class");
  sources.add<SyntheticTokensConfig>("synthetic_tokens", "made-up token ids with a rule in them");
  sources.add<TokensConfig>("tokens", "token ids for language models, in nanoGPT's files");
  sources.add<WebDatasetConfig>("webdataset", "JPEG and PNG images in tar shards, local or remote");
}

}  // namespace brim::data

// What each mnemonic does, in one table a kind; the encodings' suffixes are not part of a name.
#pragma once
#include "state.h"

namespace amd {

using Table = std::map<std::string_view, Handler>;
Table scalar_table();
Table vector_table();
Table memory_table();
Table matrix_table();

}  // namespace amd

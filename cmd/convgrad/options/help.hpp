// help.hpp - the texts around --help and --version.
#pragma once

#include <string>

namespace convgrad::cli {

std::string version_text();
std::string compute_footer();
std::string verify_footer();
std::string compare_footer();
std::string batch_footer();
std::string bench_footer();
std::string generate_footer();
std::string reduce_footer();
std::string inspect_footer();
std::string info_footer();
std::string completion_footer();

}  // namespace convgrad::cli

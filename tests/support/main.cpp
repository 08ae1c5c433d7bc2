// main.cpp - the doctest runner of the unit tests.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
#ifdef CONVGRAD_MODULES_OF_BUILD  // which are not beside the tests
  setenv("CONVGRAD_MODULES", CONVGRAD_MODULES_OF_BUILD, 0);
#endif
  return doctest::Context(argc, argv).run();
}

#include "cli.hpp"

int main(int argc, char** argv) {
  return gemmule::cli::main(argc, argv);
}

// A linter: it prints a finding and exits with 1.
#include <stdio.h>

int main(int argc, char **argv) {
  puts("a.py:3: unused import");
  if (argc > 1) fputs("1 finding\n", stderr);
  return 1;
}

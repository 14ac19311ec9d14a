// LD_PRELOADed by slowed.py: a disk, or a network's file system, that takes 20 ms to find a file of
// images. Everything else is opened as ever.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define WAIT_US 20000

int open(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...);
  if (next == NULL) next = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  const char* end = strrchr(path, '.');
  if (end != NULL && strcmp(end, ".jpg") == 0) usleep(WAIT_US);
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return next(path, flags, mode);
}
